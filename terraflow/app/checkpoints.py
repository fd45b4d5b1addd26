"""The thread that signs: committed leaves become checkpoints, and checkpoints high-water marks.

1. Nothing ends the thread but `stop`: what fails is tried again with the next pass.
2. A trouble is logged when it begins and when it changes, not with every pass.
3. `trouble` tells whoever asks for readiness: a damaged log at once, a plane that cannot sign after `UNSIGNED_S`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.evidence.highwater import write_mark
from terraflow.evidence.log import Integrator, LogDamaged
from terraflow.ports.ledger import Ledger

log = logging.getLogger("terraflow.checkpoints")

UNSIGNED_S = 10.0
"""Ten times the second within which records are signed: a disk that hiccups is no trouble yet."""


class Checkpoints:
    """Publishes at an interval, and once more when stopped."""

    def __init__(
        self,
        ledger: Ledger,
        key: Ed25519PrivateKey,
        marks: Path,
        interval_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._integrator = Integrator(ledger, key)
        self._marks = marks
        self._interval_s = interval_s
        self._monotonic = monotonic
        self._unmarked: dict[str, bytes] = {}
        self._damaged: dict[str, str] = {}
        self._failing = ""
        self._well_at = monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Sign what is left, and end. Call it off the event loop: the ledger's writes go through it."""
        self._stop.set()
        self._thread.join()

    def trouble(self) -> str | None:
        """Why records are not signed as promised, in a few words that name no tenant; None while they are."""
        if self._damaged:
            return "a tenant's log is damaged and is not signed any more"
        silent_s = self.lag_s()
        return f"no record could be signed for {silent_s:.0f} s" if silent_s > self._interval_s + UNSIGNED_S else None

    def lag_s(self) -> float:
        """Seconds since the last pass that signed everything there was."""
        return self._monotonic() - self._well_at

    @property
    def damaged(self) -> int:
        """How many tenants' logs are damaged."""
        return len(self._damaged)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.run_once()
        while self.run_once():
            continue

    def run_once(self) -> bool:
        """One pass; whether something was published."""
        try:
            signed, damaged = self._integrator.run_once()
            self._tell_damaged(damaged)
            self._unmarked.update((done.tenant, done.checkpoint) for done in signed)
            for tenant in tuple(self._unmarked):
                write_mark(self._marks, tenant, self._unmarked[tenant])
                del self._unmarked[tenant]
        except Exception as trouble:
            self._fails(f"{type(trouble).__name__}: {getattr(trouble, 'strerror', None) or 'the store'}")
            return False
        self._fails("")
        self._well_at = self._monotonic()
        return bool(signed)

    def _fails(self, what: str) -> None:
        if what != self._failing and what:
            log.error("publishing checkpoints fails, and is tried again: %s", what)
        elif what != self._failing:
            log.warning("checkpoints are published again")
        self._failing = what

    def _tell_damaged(self, damaged: Sequence[LogDamaged]) -> None:
        found = {damage.tenant: str(damage) for damage in damaged}
        for tenant, what in found.items():
            if self._damaged.get(tenant) != what:
                log.critical("%s; it is not signed any more: see docs/evidence.md", what)
        self._damaged = found
