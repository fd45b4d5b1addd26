"""How far a long command is, on standard error, once it has taken a while."""

from __future__ import annotations

import sys
import time
from types import TracebackType

SHOWN_AFTER_S = 2.0


class Progress:
    """Called with how much is done, and of how much; shows nothing to who waits less than `SHOWN_AFTER_S`. A context
    manager: leaving it ends the line that it wrote on."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started, self._shown = time.monotonic(), False

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._started > SHOWN_AFTER_S:
            self._shown = True
            print(f"\r{done} of {total} {self._what}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._shown:
            print(file=sys.stderr)
