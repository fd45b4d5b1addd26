"""Callers of a fleet, all at once, and what the records say of where their requests went."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from tests.harness.caller import Caller

LONG = "A system prompt that is long enough to be worth a cache. " * 60
CALLERS = 6


def placements(caller: Caller, request_id: str) -> list[dict[str, Any]]:
    return [attempt.get("placement") for attempt in caller.evidence(request_id)["outcome"]["attempts"]]


class Load:
    """Callers that ask without a pause until the block ends; none may be refused."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._over = Event()
        self._pool = ThreadPoolExecutor(CALLERS)
        self.answered: list[str] = []
        self.took_s: list[float] = []
        self.refused: list[str] = []

    def __enter__(self) -> Load:
        self._running = [self._pool.submit(self._ask, at) for at in range(CALLERS)]
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        for running in self._running:
            running.result()

    def _ask(self, at: int) -> None:
        turn = 0
        while not self._over.is_set():
            turn += 1
            began = time.monotonic()
            response = self._caller.ask("chat", f"{LONG} {at % 3} {turn % 5}", temperature=0)
            self.took_s.append(time.monotonic() - began)
            if response.status_code == 200:
                self.answered.append(response.headers["x-terraflow-request-id"])
            else:
                self.refused.append(response.text)

    def run(self, more: int, within_s: float = 20.0) -> None:
        """Until so many more were answered."""
        ends, wanted = time.monotonic() + within_s, len(self.answered) + more
        while len(self.answered) < wanted:
            assert time.monotonic() < ends, f"{len(self.answered)} of {wanted}"
            time.sleep(0.02)
