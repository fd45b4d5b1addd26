"""How far a long command is, on standard error, once it has taken a while: over one line at a terminal, a line now and
then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

SHOWN_AFTER_S = 2.0
LINE_EVERY_S = 10.0


class Progress:
    """Called with how much is done, and of how much; shows nothing to who waits less than `SHOWN_AFTER_S`. A context
    manager: leaving it ends the line that it wrote on."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started, self._shown = time.monotonic(), False
        self._terminal = sys.stderr.isatty()
        self._line_at = self._started + LINE_EVERY_S

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._terminal:
            if now >= self._line_at:
                self._line_at = now + LINE_EVERY_S
                print(f"{done} of {total} {self._what}", file=sys.stderr, flush=True)
        elif now - self._started > SHOWN_AFTER_S:
            self._shown = True
            print(f"\r{done} of {total} {self._what}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._shown:
            print(file=sys.stderr)
