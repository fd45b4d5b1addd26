"""The batches that have not ended: what each needs next, and whose item runs next. Told the time; starts nothing.

1. What a batch needs is `Open.due`. Nothing, while it is being settled or ended. When it is not known how far it got,
   it is settled. While it is in progress, in its time, and may have queued items, one is taken. When it takes nothing
   more and nothing of it runs, it is ended.
2. A batch that rests takes nothing and is not settled: a second, then twice as long, at most `REST_MAX_S`.
3. So many items run at once, of all batches together. A free place goes to the tenant with the fewest running items,
   among equals to the one whose turn it is, and to the batch of that tenant's whose turn it is.
4. Rests and windows end by themselves, so all batches are looked at now and then; between, only those with which
   something has happened. What one item costs does not grow with how many batches there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum, auto

from terraflow.core.types import Instant
from terraflow.gateway.running import Presence
from terraflow.ports.batches import Batch, BatchStatus

REST_MAX_S = 60.0


class Due(Enum):
    """What a batch needs next."""

    NOTHING = auto()
    SETTLE = auto()
    TAKE = auto()
    END = auto()


class Open:
    """A batch that has not ended, as this process runs it.

    `live` are the requests that run for it, by their ids; `taken` is the number of the item that was taken last.
    `troubled`: it is not known how far it got. `drained`: no item was queued when one was asked for. `engaged`: it is
    being settled or ended.
    """

    __slots__ = ("batch", "drained", "engaged", "live", "pause_s", "rest_until", "taken", "takes", "troubled")

    def __init__(self, batch: Batch, *, troubled: bool) -> None:
        self.batch = batch
        self.live: dict[str, Presence] = {}
        self.troubled = troubled
        self.drained = False
        self.engaged = False
        self.rest_until = 0.0
        self.pause_s = 0.0
        self.taken = -1
        self.takes = False

    def rest(self, now: float, asked_s: float = 0.0) -> None:
        """Take nothing for a while. What comes back while it rests does not make it longer."""
        if now >= self.rest_until:
            self.pause_s = min(REST_MAX_S, max(asked_s, 2 * self.pause_s, 1.0))
            self.rest_until = now + self.pause_s

    def give_way(self) -> None:
        """What runs for it and has asked no provider stops."""
        for presence in self.live.values():
            presence.give_way()

    def takes_more(self, wall: Instant) -> bool:
        """Whether it is in progress, and in its time."""
        return self.batch.status is BatchStatus.IN_PROGRESS and wall < self.batch.expires_at

    def due(self, now: float, wall: Instant) -> Due:
        """What it needs (rules 1 and 2)."""
        if self.engaged:
            return Due.NOTHING
        rested = now >= self.rest_until
        if self.troubled:
            return Due.SETTLE if rested else Due.NOTHING
        if self.takes_more(wall) and not self.drained:
            return Due.TAKE if rested else Due.NOTHING
        return Due.NOTHING if self.live else Due.END


class _Line:
    """A tenant's batches, the one whose turn it is first; `busy` counts their running items, `taking` those that would
    take one."""

    __slots__ = ("batches", "busy", "taking")

    def __init__(self) -> None:
        self.batches: OrderedDict[str, Open] = OrderedDict()
        self.busy = 0
        self.taking = 0


class OpenBatches:
    """The batches of one process. Every change of an `Open` is followed by `look`."""

    def __init__(self, running_max: int) -> None:
        self._running_max = running_max
        self._running = 0
        self._by_id: dict[str, Open] = {}
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> list[Open]:
        """Every batch."""
        return list(self._by_id.values())

    def find(self, batch_id: str) -> Open | None:
        """The batch of this id."""
        return self._by_id.get(batch_id)

    def add(self, batch: Batch, *, troubled: bool) -> Open:
        """One more."""
        opened = self._by_id[batch.id] = Open(batch, troubled=troubled)
        self._lines.setdefault(batch.tenant, _Line()).batches[batch.id] = opened
        return opened

    def remove(self, ended: Open) -> None:
        """It has ended; nothing of it runs."""
        tenant, line = self._line(ended)
        self._set(line, ended, takes=False)
        del self._by_id[ended.batch.id], line.batches[ended.batch.id]
        if not line.batches:
            del self._lines[tenant]

    def look(self, some: Iterable[Open], now: float, wall: Instant) -> list[tuple[Open, Due]]:
        """See what these need; those to settle and to end, which are engaged from now on. Others wait for `next`."""
        found: list[tuple[Open, Due]] = []
        for opened in some:
            if self._by_id.get(opened.batch.id) is not opened:
                continue
            due = opened.due(now, wall)
            self._set(self._line(opened)[1], opened, takes=due is Due.TAKE)
            if due in (Due.SETTLE, Due.END):
                opened.engaged = True
                found.append((opened, due))
        return found

    def next(self, now: float, wall: Instant) -> Open | None:
        """Whose item runs next (rule 3), None when nobody's may; its place counts as taken from now on."""
        while self._running < self._running_max and (tenant := self._turn()) is not None:
            line = self._lines[tenant]
            chosen = next(opened for opened in line.batches.values() if opened.takes)
            if chosen.due(now, wall) is not Due.TAKE:
                self._set(line, chosen, takes=False)
                continue
            self._running += 1
            line.busy += 1
            line.batches.move_to_end(chosen.batch.id)
            self._lines.move_to_end(tenant)
            return chosen
        return None

    def freed(self, opened: Open) -> None:
        """An item of it runs no more."""
        self._running -= 1
        self._line(opened)[1].busy -= 1

    def _turn(self) -> str | None:
        """At most `running_max` tenants are busy, so one that is not is soon met."""
        best, least = None, self._running_max
        for tenant, line in self._lines.items():
            if line.taking and line.busy < least:
                best, least = tenant, line.busy
                if not least:
                    break
        return best

    def _line(self, opened: Open) -> tuple[str, _Line]:
        tenant = opened.batch.tenant
        return tenant, self._lines[tenant]

    @staticmethod
    def _set(line: _Line, opened: Open, *, takes: bool) -> None:
        line.taking += takes - opened.takes
        opened.takes = takes
