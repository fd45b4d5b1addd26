"""Entries (replica × key) in flat memory, their batches, and their order of arrival.

1. A row of eight numbers, one view each: the key's next entry, its holding, batch, count, key, its neighbours by
   arrival in the holding, and its rank in the batch with its tier.
2. A batch is what came at once: one time, one run of places in the order of arrival, and how many entries it has left.
   A holding's latest batch tells in one step whether it still holds anything within the TTL.
3. The cap's victim is found from below: each holding's own, and the least of those. A holding's weight is put right
   where it falls, and when it comes to the top where it has only risen.
"""

from __future__ import annotations

from terraflow.hints.index.heap import Heap
from terraflow.hints.index.keys import Keys
from terraflow.hints.index.memory import region
from terraflow.hints.index.places import Holding

HOLDINGS_MAX = 1 << 16
"""Pairs of a scope and a replica, over all tenants."""
ARRIVALS_FROM = float(1 << 40)
"""The first place in the order of arrival; what a snapshot brings back lies before it."""


class Arrivals(Keys):
    """See the module. Number 0 is no entry, batch or holding. Times are seconds."""

    def __init__(self, entries_max: int) -> None:
        rows = entries_max + 8
        Keys.__init__(self, rows)
        self.entries_max = entries_max
        table = region("i", rows * 8)
        self.e_next = table[0::8]
        self.e_hold = table[1::8]
        self.e_batch = table[2::8]
        self.e_count = table[3::8]
        self.e_key = table[4::8]
        self.e_prev = table[5::8]
        self.e_after = table[6::8]
        self.e_rank = table[7::8]
        self.credits = region("i", rows)
        self.old_at = region("i", rows)
        self.rare_at = region("i", rows)
        self.b_left = region("i", rows)
        self.b_seen = region("d", rows)
        self.b_from = region("d", rows)
        self.b_at = region("i", rows)
        self.e_top = self.b_top = 1
        self.e_free = self.b_free = 0
        self.entries = 0
        self.arrivals = ARRIVALS_FROM
        self.holdings: list[Holding | None] = [None]
        self.victims = Heap(region("i", HOLDINGS_MAX + 1), True)
        self.weight = self.weight_arrived = 0.0

    def _make_batch(self, holding: Holding, seen: float, place: float) -> int:
        batch = self.b_free
        if batch:
            self.b_free = self.b_left[batch]
        else:
            batch = self.b_top
            self.b_top = batch + 1
        self.b_left[batch] = 0
        self.b_seen[batch] = seen
        self.b_from[batch] = place
        holding.seen.put(batch, -seen, 0.0)
        return batch

    def _leave_batch(self, batch: int, holding: Holding) -> None:
        left = self.b_left[batch] - 1
        self.b_left[batch] = left
        if left <= 0:
            holding.seen.drop(batch)
            self.b_left[batch] = self.b_free
            self.b_free = batch

    # The order of arrival inside a holding

    def arrived(self, entry: int) -> float:
        """An entry's place in the order of arrival."""
        arrived: float = self.b_from[self.e_batch[entry]] + (self.e_rank[entry] >> 3)
        return arrived

    def _enter(self, entry: int, holding: Holding) -> None:
        place = self.arrived(entry)
        if self.credits[entry] or (holding.last and place < self.arrived(holding.last)):
            if holding.old is None or holding.rare is None:
                holding.old = Heap(self.old_at, False)
                holding.rare = Heap(self.rare_at, True)
            holding.old.put(entry, place, 0.0)
            holding.rare.put(entry, float(self.credits[entry]), place)
            self.reweigh(holding)
            return
        self.e_prev[entry] = holding.last
        self.e_after[entry] = 0
        if holding.last:
            self.e_after[holding.last] = entry
            holding.last = entry
        else:
            holding.first = holding.last = entry
            self.reweigh(holding)

    def _leave(self, entry: int, holding: Holding) -> None:
        if self.old_at[entry] and holding.old is not None and holding.rare is not None:
            holding.old.drop(entry)
            holding.rare.drop(entry)
            return
        before = self.e_prev[entry]
        after = self.e_after[entry]
        if before:
            self.e_after[before] = after
        else:
            holding.first = after
        if after:
            self.e_prev[after] = before
        else:
            holding.last = before

    def _weigh(self, holding: Holding) -> int:
        """The entry that the cap takes first of a holding; `weight` and `weight_arrived` are its credits and place."""
        victim = holding.first
        self.weight = 0.0
        if victim:
            self.weight_arrived = self.arrived(victim)
        if holding.old is None or holding.rare is None or holding.old.size == 0:
            return victim
        if holding.tenant.lfu:
            least: int = holding.rare.items[0]
            weight = holding.rare.majors[0]
            place = holding.rare.minors[0]
        else:
            least = holding.old.items[0]
            weight = 0.0
            place = holding.old.majors[0]
        if not victim or (weight == 0.0 and place < self.weight_arrived):
            self.weight = weight
            self.weight_arrived = place
            return least
        return victim

    def reweigh(self, holding: Holding) -> None:
        """What the cap takes first of it, or how its tenant's rule weighs that, has changed."""
        if holding.size and not holding.dead:
            self._weigh(holding)
            self.victims.put(holding.number, self.weight, self.weight_arrived)

    def _entry_of(self, key: int, number: int) -> int:
        """A key's entry of the holding of that number, or 0; no key has none."""
        entry: int = self.k_head[key]
        while entry and self.e_hold[entry] != number:
            entry = self.e_next[entry]
        return entry

    def _make_entry(self, key: int, holding: Holding) -> int:
        entry = self.e_free
        if entry:
            self.e_free = self.e_next[entry]
        else:
            entry = self.e_top
            self.e_top = entry + 1
        self.e_next[entry] = self.k_head[key]
        self.k_head[key] = entry
        self.e_hold[entry] = holding.number
        self.e_key[entry] = key
        holding.size += 1
        self.entries += 1
        return entry
