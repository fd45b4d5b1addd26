"""Counters and reservations.

1. The database is the truth; counters read from it stay in memory while nobody else writes, so that a check is
   arithmetic and a counter that many verbs of a transaction touch is written once.
2. A counter's `reserved` is the sum of the open reservations on it, `posted` the sum of what was posted; both
   change in the transaction that changes the reservation.
3. A reservation is checked on every line before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from terraflow.core.types import Instant
from terraflow.ports.store import BudgetLine, NoRoom, Reservation, Settlement, StoreConflict
from terraflow.spend.budgets import has_room
from terraflow.spend.reservation import Event, State, resolve
from terraflow.storage.sqlite.connection import Database

COUNTERS_MAX = 50_000
"""Counters kept in memory; past windows are let go when there are more."""

_decode_lines = msgspec.json.Decoder(list[tuple[int, int | None]]).decode
_encode = msgspec.json.Encoder().encode


class _Counter:
    __slots__ = ("id", "posted", "reserved")

    def __init__(self, counter_id: int, reserved: int, posted: int) -> None:
        self.id = counter_id
        self.reserved = reserved
        self.posted = posted


_Key = tuple[str, str, str, str, str]
_Open = tuple[int, tuple[_Counter, ...]]
_UNUSED = _Counter(0, 0, 0)


class Money:
    """Reserving and settling, inside a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counters: dict[_Key, _Counter] = {}
        self._by_id: dict[int, _Counter] = {}
        self._open: dict[str, _Open] = {}
        self._changed: dict[int, _Counter] = {}

    def forget(self) -> None:
        """Read everything again before using it."""
        self._counters.clear()
        self._by_id.clear()
        self._open.clear()
        self._changed.clear()

    def write_changes(self) -> None:
        """Write each counter that this transaction changed."""
        if self._changed:
            self._database.many("write_counter", [(c.reserved, c.posted, c.id) for c in self._changed.values()])
            self._changed.clear()
        if len(self._by_id) > COUNTERS_MAX:
            self.forget()

    def full_line(self, reservation: Reservation) -> NoRoom | None:
        """The first line without room, or None. Raises StoreConflict for an id that is open already, or for a
        counter named twice.
        """
        if reservation.id in self._open:
            raise StoreConflict("the reservation exists already")
        amount = reservation.amount
        if len(set(map(_key, reservation.lines))) != len(reservation.lines):
            raise StoreConflict("two lines are on one counter")
        for line in reservation.lines:
            if line.limit is not None:
                counter = self._find(line) or _UNUSED
                if not has_room(line.limit, counter.reserved, counter.posted, amount):
                    return NoRoom(line.level, line.window)
        return None

    def reserve(self, reservation: Reservation) -> None:
        """Set the amount aside on every line; `full_line` has said that there is room."""
        counters = tuple(map(self._counter, reservation.lines))
        lines = _encode([(counter.id, line.limit) for counter, line in zip(counters, reservation.lines, strict=True)])
        self._database.write(
            "add_reservation",
            (
                reservation.id,
                reservation.request_id,
                reservation.tenant,
                reservation.capability,
                reservation.amount,
                reservation.chargeable,
                lines.decode(),
            ),
        )
        for counter in counters:
            counter.reserved += reservation.amount
            self._changed[counter.id] = counter
        self._open[reservation.id] = (reservation.amount, counters)

    def check(self, settlements: Sequence[Settlement]) -> None:
        """Raises StoreConflict unless each names another reservation that is open."""
        if len({settlement.reservation_id for settlement in settlements}) != len(settlements):
            raise StoreConflict("a reservation is resolved twice")
        for settlement in settlements:
            if settlement.reservation_id not in self._open:
                self._find_open(settlement.reservation_id)

    def settle(self, settlements: Sequence[Settlement], now: Instant) -> None:
        """Resolve reservations that `check` has found open."""
        for settlement in settlements:
            amount, counters = self._open.pop(settlement.reservation_id)
            posted = settlement.posted or 0
            state = resolve(State.RESERVED, Event.VOID if settlement.posted is None else Event.POST)
            self._database.write("resolve_reservation", (state, posted, now, settlement.reservation_id))
            for counter in counters:
                counter.reserved -= amount
                counter.posted += posted
                self._changed[counter.id] = counter

    def lines(self, encoded: str) -> tuple[BudgetLine, ...]:
        """The lines of a stored reservation."""
        found = []
        for counter_id, limit in _decode_lines(encoded):
            tenant, level, of, window, window_key, _, _ = self._database.read("counter_by_id", (counter_id,))[0]
            found.append(BudgetLine(tenant, level, of, window, window_key, limit))
        return tuple(found)

    def _find_open(self, reservation_id: str) -> None:
        row = self._database.write("find_reservation", (reservation_id,)).fetchone()
        if row is None:
            raise StoreConflict("there is no such reservation")
        state, amount, lines = row
        if state != State.RESERVED:
            raise StoreConflict("the reservation is resolved already")
        self._open[reservation_id] = (
            amount,
            tuple(self._counter_of_id(no) for no, _limit in _decode_lines(lines)),
        )

    def _find(self, line: BudgetLine) -> _Counter | None:
        key = _key(line)
        counter = self._counters.get(key)
        if counter is None:
            row = self._database.write("find_counter", key).fetchone()
            if row is not None:
                counter = self._remember(key, _Counter(*row))
        return counter

    def _counter(self, line: BudgetLine) -> _Counter:
        counter = self._find(line)
        if counter is None:
            key = _key(line)
            counter = self._remember(key, _Counter(self._database.insert("add_counter", key), 0, 0))
        return counter

    def _remember(self, key: _Key, counter: _Counter) -> _Counter:
        self._counters[key] = self._by_id[counter.id] = counter
        return counter

    def _counter_of_id(self, counter_id: int) -> _Counter:
        counter = self._by_id.get(counter_id)
        if counter is None:
            row = self._database.write("counter_by_id", (counter_id,)).fetchone()
            counter = self._remember(row[:5], _Counter(counter_id, *row[5:]))
        return counter


def _key(line: BudgetLine) -> _Key:
    return (line.tenant, line.level, line.of, line.window, line.window_key)
