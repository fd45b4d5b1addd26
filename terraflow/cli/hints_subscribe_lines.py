"""What `terraflow hints subscribe` writes: each change as it happens, and now and then how it goes."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from terraflow.cli.shown import shown

if TYPE_CHECKING:
    from terraflow.hints.feed.feeds import Feeds
    from terraflow.hints.feed.remote import RemoteSink

COUNTERS_EVERY_S, LOG_EVERY_S, TERMINAL_EVERY_S = 10.0, 60.0, 1.0
"""How often counters are printed, and a line is written to a log and to a terminal, unless it is said."""

_OVER = "\r\x1b[K"
"""Over the line that stands at the terminal."""


class _Changes(logging.Handler):
    """A line of the feed's or of the server's, as an operator reads it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write it."""
        began = _OVER if sys.stderr.isatty() else ""
        raised = record.exc_info[0] if isinstance(record.exc_info, tuple) else None
        what = f": {raised.__name__}" if raised is not None else ""
        print(f"{began}hints subscribe: {shown(record.getMessage())}{what}", file=sys.stderr, flush=True)


def write_changes() -> None:
    """Write what changes with the engine and with the server to standard error, at once."""
    log = logging.getLogger("terraflow.hints")
    log.addHandler(_Changes())
    log.setLevel(logging.INFO)
    log.propagate = False


def counted(feeds: Feeds, sink: RemoteSink) -> dict[str, Any]:
    """Every counter, as `--json` prints them."""
    import msgspec

    return {
        "states": {replica: str(state) for replica, state in feeds.states().items()},
        "connected": all(feeds.connected().values()),
        "feed": next(iter(feeds.numbers().values())),
        "server": {**msgspec.structs.asdict(sink.counters), "waiting": sink.waiting, "last_error": sink.last_error},
    }


async def show(feeds: Feeds, sink: RemoteSink, interval_s: float | None, as_json: bool) -> None:
    """Say how it goes, again and again."""
    terminal = sys.stderr.isatty()
    every_s = COUNTERS_EVERY_S if as_json else TERMINAL_EVERY_S if terminal else LOG_EVERY_S
    while True:
        await asyncio.sleep(every_s if interval_s is None else interval_s)
        if as_json:
            print(json.dumps(counted(feeds, sink)), flush=True)
        elif terminal:
            print(f"{_OVER}{_line(feeds, sink)}", end="", file=sys.stderr, flush=True)
        else:
            print(f"hints subscribe: {_line(feeds, sink)}", file=sys.stderr, flush=True)


def _line(feeds: Feeds, sink: RemoteSink) -> str:
    numbers, sent = next(iter(feeds.numbers().values())), sink.counters
    states = ", ".join(f"{replica} {state}" for replica, state in feeds.states().items())
    if not all(feeds.connected().values()):
        states += ", not connected" if numbers.get("connects", 0) else ", not connected yet"
    line = (
        f"{states}: {numbers.get('batches', 0)} batches, {sent.blocks_reported} blocks reported,"
        f" {sent.blocks_evicted} evicted, {numbers.get('gaps', 0)} gaps, {sink.waiting} waiting"
    )
    if sink.last_error:
        return f"{line}; the server {sink.last_error}"
    return line if sink.answered else f"{line}; the server has not answered yet"
