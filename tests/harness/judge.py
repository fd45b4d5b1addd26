"""What must hold of a plane's folder each time it has been started again, judged by what its callers were told and by
what the models behind it saw; nothing here asks the plane.

1. What was told is recorded exactly once, intent and outcome, with that code (rate refusals, which are noted without
   waiting, excepted: they may be missing, but not doubled and not otherwise).
2. Every log is without a gap, every leaf hashes, every intent has one outcome after it.
3. Nothing reached a model without a durable intent, and the same key never did twice.
4. Every cent is where the records say: counters are the sums of the outcomes' costs at every level and in every window,
   nothing is reserved, and what a model answered is paid for: exactly, or, where a crash hid it, at the worst case.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from terraflow.core.reasons import Governed
from terraflow.evidence.record import Intent, Outcome, Record
from terraflow.storage.sqlite.folder import DATABASE
from tests.harness.counting import Counting
from tests.harness.mix import POOR_LIMIT, Ask, Mix, Told

_decode = msgspec.json.Decoder(Record).decode
_INDEX_MASK = (1 << 40) - 1
_SEVERAL_ATTEMPTS = ("flaky", "repaired")

Counter = tuple[str, str, str, str]


class _Request(msgspec.Struct):
    intent: Intent
    outcome: Outcome | None = None


class PlaneJudge:
    """Reads what each start has left, since it looked last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next: dict[int, int] = {}
        self._ids: dict[str, int] = {}
        self._of_digest: dict[str, list[_Request]] = {}
        self._recent: dict[str, _Request] = {}
        self._posted: dict[Counter, int] = {}
        self.outcomes: dict[str, int] = {}
        self.recovered = 0

    def look(self, mix: Mix, upstream: Counting) -> list[str]:
        """Every broken promise; the plane has been started and nobody calls it yet."""
        self._recent = {}
        with closing(sqlite3.connect(self._folder / DATABASE, timeout=5)) as database:
            found = [*mix.odd, *self._read(database), *self._counters(database)]
        found += [problem for told in mix.told for problem in self._told(told)]
        for digest, ask in list(mix.asks.items()):
            found += self._asked(digest, ask, mix, upstream)
        mix.told, mix.odd = [], []
        return found

    def _read(self, database: sqlite3.Connection) -> Iterable[str]:
        for (no,) in database.execute("SELECT no FROM tenant").fetchall():
            start = (no << 40) + self._next.get(no, 0)
            rows = database.execute(
                "SELECT position, request_id, data, hash FROM leaf WHERE position >= ? AND position < ? "
                "ORDER BY position",
                (start, (no + 1) << 40),
            )
            for expected, (position, request_id, data, stored) in enumerate(rows, start):
                if position != expected:
                    yield f"leaf {expected & _INDEX_MASK} of tenant {no} is missing"
                    return
                if hashlib.sha256(b"\0" + data).digest() != stored:
                    yield f"leaf {position & _INDEX_MASK} of tenant {no} does not hash"
                yield from self._leaf(request_id, _decode(data), database)
                self._next[no] = (position & _INDEX_MASK) + 1
        yield from (f"{i} has no outcome" for i, request in self._recent.items() if request.outcome is None)
        yield from (f"{row[0]} is still open" for row in database.execute("SELECT request_id FROM open_request"))
        yield from (f"{r[0]} is still reserved" for r in database.execute(
            "SELECT id FROM reservation WHERE state = 'reserved'"))  # fmt: skip

    def _leaf(self, request_id: str, record: Record, database: sqlite3.Connection) -> Iterable[str]:
        if record.request_id != request_id:
            yield f"{request_id} holds the record of {record.request_id}"
        if isinstance(record, Intent):
            if request_id in self._ids:
                yield f"{request_id} has two intents"
            self._ids[request_id] = 1
            request = self._recent[request_id] = _Request(record)
            assert record.request is not None
            self._of_digest.setdefault(record.request.digest, []).append(request)
            return
        found = self._recent.get(request_id)
        if found is None or found.outcome is not None:
            yield f"{request_id} has {'no intent before its outcome' if found is None else 'two outcomes'}"
            return
        found.outcome = record
        self.outcomes[record.reason_code] = self.outcomes.get(record.reason_code, 0) + 1
        self.recovered += record.recovered
        yield from self._post(found.intent, record, database)

    def _post(self, intent: Intent, outcome: Outcome, database: sqlite3.Connection) -> Iterable[str]:
        """Count an outcome's cost on the counters that its intent names; where an hour ended between its attempts, on
        those that its reservations name."""
        if outcome.cost_micro_usd and not intent.reserved:
            yield f"{intent.request_id} cost {outcome.cost_micro_usd} and reserved nothing"
        if intent.time[:13] == outcome.time[:13]:
            shares = [((line.level, line.of, line.window), outcome.cost_micro_usd) for line in intent.reserved]
        else:
            shares = list(_by_reservation(intent.request_id, database))
        for (level, of, window), amount in shares:
            counter = (intent.tenant, level, of, window)
            self._posted[counter] = self._posted.get(counter, 0) + amount

    def _counters(self, database: sqlite3.Connection) -> Iterable[str]:
        rows = database.execute("SELECT tenant, level, of, window_key, reserved, posted FROM counter")
        kept: dict[Counter, tuple[int, int]] = {tuple(row[:4]): (row[4], row[5]) for row in rows}  # type: ignore[misc]
        for counter in kept.keys() | self._posted.keys():
            reserved, posted = kept.get(counter, (0, 0))
            if (reserved, posted) != (0, self._posted.get(counter, 0)):
                yield f"{counter}: {reserved} reserved, {posted} posted; the records say {self._posted.get(counter, 0)}"
            if counter[1:3] == ("workload", "poor") and len(counter[3]) > 7 and posted > POOR_LIMIT:
                yield f"{counter} is overspent: {posted}"

    def _told(self, told: Told) -> Iterable[str]:
        request = self._recent.get(told.request_id)
        if request is None or request.outcome is None:
            if told.code != Governed.RATE_LIMITED:
                yield f"{told.request_id} was told {told.code} and is not recorded"
            return
        outcome = request.outcome
        expected = (told.code,) if told.code is not None else told.kind.codes
        if outcome.reason_code not in expected or outcome.tenant != told.tenant or outcome.recovered:
            yield f"{told.request_id} was told {told.code}, recorded is {outcome.reason_code} {outcome.detail or ''}"

    def _asked(self, digest: str, ask: Ask, mix: Mix, upstream: Counting) -> Iterable[str]:
        calls = upstream.calls.get(ask.word, 0)
        requests = self._of_digest.get(digest, [])
        if calls and not any(request.intent.reserved for request in requests):
            yield f"{ask.word} reached a model and no intent says so"
        if ask.kind.keyed and calls > 1:
            yield f"{ask.word} reached a model {calls} times with one key"
        if mix.owes(ask):
            return
        _, calls, used = mix.end(digest, upstream)
        self._of_digest.pop(digest, None)
        ended = [(r.intent, r.outcome) for r in requests if r.outcome is not None]
        cost = sum(outcome.cost_micro_usd for _, outcome in ended)
        if cost < used and ask.kind.name != "left":
            yield f"{ask.word} cost {used} at the model, and {cost} is recorded"
        crashed = any(outcome.recovered for _, outcome in ended)
        if not crashed and ask.kind.name not in ("left", "limited") and cost != used:
            yield f"{ask.word} cost {used} at the model, and {cost} is recorded without a crash"
        if not crashed and ask.kind.name != "limited" and sum(len(o.attempts) for _, o in ended) != calls:
            yield f"{ask.word} reached a model {calls} times, otherwise recorded"
        for intent, outcome in ended:
            yield from _worst_case(ask, intent, outcome)


def _worst_case(ask: Ask, intent: Intent, outcome: Outcome) -> Iterable[str]:
    """What a crash hid is posted at what was set aside for it. (Of several attempts the ended ones cost what they did;
    that all of them together cost at least what the model says is judged above.)"""
    if not outcome.recovered or not intent.reserved:
        return
    if outcome.cost_micro_usd != intent.reserved_micro_usd and ask.kind.name not in _SEVERAL_ATTEMPTS:
        yield f"{ask.word} was left by a crash and posted at {outcome.cost_micro_usd}, not {intent.reserved_micro_usd}"


def _by_reservation(request_id: str, database: sqlite3.Connection) -> Iterable[tuple[tuple[Any, ...], int]]:
    rows = database.execute("SELECT lines, posted FROM reservation WHERE request_id = ?", (request_id,)).fetchall()
    for lines, posted in rows:
        for counter, _ in json.loads(lines):
            named = database.execute("SELECT level, of, window_key FROM counter WHERE id = ?", (counter,)).fetchone()
            yield tuple(named), posted
