"""The thread that signs: committed leaves become checkpoints, and checkpoints high-water marks."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.evidence.highwater import write_mark
from terraflow.evidence.log import Integrator
from terraflow.ports.ledger import Ledger
from terraflow.ports.store import StoreUnavailable

log = logging.getLogger("terraflow.checkpoints")


class Checkpoints:
    """Publishes at an interval, and once more when stopped."""

    def __init__(self, ledger: Ledger, key: Ed25519PrivateKey, marks: Path, interval_s: float) -> None:
        self._integrator = Integrator(ledger, key)
        self._marks = marks
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Sign what is left, and end. Call it off the event loop: the ledger's writes go through it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._pass()
        while self._pass():
            continue

    def _pass(self) -> bool:
        """Whether something was published."""
        try:
            signed, damaged = self._integrator.run_once()
            for done in signed:
                write_mark(self._marks, done.tenant, done.checkpoint)
        except (StoreUnavailable, OSError) as trouble:
            log.error("publishing checkpoints failed: %s", type(trouble).__name__)
            return False
        for damage in damaged:
            log.critical("%s", damage)
        return bool(signed)
