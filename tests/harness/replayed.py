"""Money judged from the evidence alone: every log is replayed, leaf by leaf, in the order in which it was committed.

1. An intent sets its worst case aside on the counters that it names, its outcome gives that back and posts its cost.
   At no leaf may what is set aside and posted exceed a limit.
2. At the end nothing is set aside, and the database's counters are what was posted.
3. It holds for requests of one attempt, whose every reservation is in the log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from terraflow.evidence.record import Intent, Record
from terraflow.storage.sqlite.folder import DATABASE

_decode = msgspec.json.Decoder(Record).decode
_HOUR_KEY = len("2026-11-30T14")

Limits = Mapping[tuple[str, str, str, str], int]
"""Micro-dollars by tenant, level, owner and window (`hour` or `month`)."""
Counter = tuple[str, str, str, str]


class Replay(msgspec.Struct):
    """What a replay came to: `highest` is the most that was ever set aside and posted together on a counter, `costs`
    are posted micro-dollars by tenant and workload."""

    problems: list[str]
    highest: dict[Counter, int]
    costs: dict[str, int]
    requests: int


class _Books:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, Intent] = {}
        self.held: dict[Counter, int] = {}
        self.posted: dict[Counter, int] = {}
        self.replay = Replay([], {}, {}, 0)

    def take(self, record: Record) -> None:
        """The next leaf."""
        if isinstance(record, Intent):
            self._open[record.request_id] = record
            for counter in _counters(record):
                self.held[counter] = self.held.get(counter, 0) + record.reserved_micro_usd
                self._look(counter)
            return
        intent = self._open.pop(record.request_id)
        self.replay.requests += 1
        purpose = f"{intent.tenant}/{intent.workload}"
        self.replay.costs[purpose] = self.replay.costs.get(purpose, 0) + record.cost_micro_usd
        if record.cost_micro_usd > intent.reserved_micro_usd:
            self.replay.problems.append(f"{record.request_id} cost more than was set aside for it")
        for counter in _counters(intent):
            self.held[counter] -= intent.reserved_micro_usd
            self.posted[counter] = self.posted.get(counter, 0) + record.cost_micro_usd
            self._look(counter)

    def _look(self, counter: Counter) -> None:
        together = self.held.get(counter, 0) + self.posted.get(counter, 0)
        if together <= self.replay.highest.get(counter, -1):
            return
        self.replay.highest[counter] = together
        tenant, level, of, key = counter
        limit = self._limits.get((tenant, level, of, "hour" if len(key) == _HOUR_KEY else "month"))
        if limit is not None and together > limit:
            self.replay.problems.append(f"{counter} stood at {together}, {together - limit} over its limit")

    def close(self, kept: Mapping[Counter, tuple[int, int]]) -> None:
        """Hold the database's counters, (reserved, posted), against the books."""
        self.replay.problems += [f"{request_id} has no outcome" for request_id in self._open]
        for counter in kept.keys() | self.held.keys():
            expected = (self.held.get(counter, 0), self.posted.get(counter, 0))
            if kept.get(counter) != expected or expected[0] != 0:
                self.replay.problems.append(f"{counter} is {kept.get(counter)}, the evidence says {expected}")


def replay(folder: Path, limits: Limits) -> Replay:
    """Replay every log of a stopped plane's folder."""
    books = _Books(limits)
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        for record in _records(database):
            books.take(record)
        rows = database.execute("SELECT tenant, level, of, window_key, reserved, posted FROM counter").fetchall()
    books.close({(row[0], row[1], row[2], row[3]): (row[4], row[5]) for row in rows})
    return books.replay


def _records(database: sqlite3.Connection) -> Iterator[Record]:
    for (data,) in database.execute("SELECT data FROM leaf ORDER BY position"):
        yield _decode(data)


def _counters(intent: Intent) -> list[Counter]:
    return [(intent.tenant, line.level, line.of, line.window) for line in intent.reserved]
