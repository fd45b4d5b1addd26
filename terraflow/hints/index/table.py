"""The hot table: every key and every entry (replica × key), in flat memory, with each cost proportional to its change.

1. Nothing here grows at once, is walked as a whole or is an object of its own: no pause from growth, sweep or garbage
   collection.
2. One source: compiled by Cython where a compiler is (table.pxd), else read as it is; both give the same answers.
3. A cleared holding is not seen from that instant; its entries are taken out in steps, before any victim of the cap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from terraflow.hints.index.arrivals import HOLDINGS_MAX
from terraflow.hints.index.heap import Heap
from terraflow.hints.index.places import CAUSES, Holding, Source, Space, Tenant
from terraflow.hints.index.runs import Runs

SPACES_MAX = 1 << 16
CREDITS_MAX = (1 << 31) - 1
"""Where credits stay: a block of every prompt has as many within two days."""

TTL, CAP, QUOTA, EVENT, CLEAR = range(CAUSES)
"""Why an entry leaves, in the order of `said.Cause`; places of `removed`."""


class Table(Runs):
    """See the modules. `seen` is when an entry counts as last reported."""

    def __init__(self, entries_max: int) -> None:
        Runs.__init__(self, entries_max)
        self.waiting = 0
        self.spaces: list[Space | None] = [None]
        self.free_holdings: list[int] = []
        self.free_spaces: list[int] = []
        self.dead: list[Holding] = []
        self.removed = [[0] * CAUSES, [0] * CAUSES]
        self.tell: Callable[[str, Holding, Space, bytes], None] | None = None
        self.turn = 0
        self.admitted = self.refreshed = 0

    # Where things belong

    def holding(self, scope: Any, source: Source) -> Holding | None:
        """A new holding, or None: there are too many."""
        if not self.free_holdings and len(self.holdings) > HOLDINGS_MAX:
            return None
        number = self.free_holdings.pop() if self.free_holdings else len(self.holdings)
        made = Holding(number, scope, source, Heap(self.b_at, False))
        if number == len(self.holdings):
            self.holdings.append(made)
        else:
            self.holdings[number] = made
        self.depth[number] = 0
        self.marks[number] = source.mark
        return made

    def space(self, scope: Any, adapter: str) -> Space | None:
        """A new space, or None: there are too many."""
        if not self.free_spaces and len(self.spaces) > SPACES_MAX:
            return None
        number = self.free_spaces.pop() if self.free_spaces else len(self.spaces)
        made = Space(number, scope, adapter)
        if number == len(self.spaces):
            self.spaces.append(made)
        else:
            self.spaces[number] = made
        return made

    def forget_holding(self, holding: Holding) -> None:
        """Give an empty holding's number back."""
        self.holdings[holding.number] = None
        self.free_holdings.append(holding.number)

    def forget_space(self, space: Space) -> None:
        """Give an empty space's number back."""
        self.spaces[space.number] = None
        self.free_spaces.append(space.number)

    # Writes

    def ingest(
        self,
        space: Space,
        holding: Holding,
        hashes: list[bytes],
        counts: list[int],
        tiers: list[int],
        order: list[int],
        seen: float,
    ) -> None:
        """Take in what a replica reports at once, in this order of places; adds to `admitted` and `refreshed`.

        A new key beyond the tenant's quota takes out the tenant's oldest, an entry beyond the cap the cap's victim.
        """
        # More than the cap only where a listener raised between an entry and its relief.
        while self.entries > self.entries_max:
            self._relieve()
        tenant = space.tenant
        base = self.arrivals + 1.0
        batch = self._make_batch(holding, seen, base)
        self.b_left[batch] = 1
        rank = 0
        number = holding.number
        try:
            for i in order:
                # What is no number of its size fails here, before anything has been changed for it.
                count = counts[i]
                tier = tiers[i]
                key = self.find(space.number, hashes[i])
                entry = self._entry_of(key, number)
                if not key:
                    key = self._make_key(space)
                elif key != tenant.last:
                    self._unqueue(key, tenant)
                    self._queue(key, tenant)
                into = batch
                if entry:
                    self._leave(entry, holding)
                    was = self.e_batch[entry]
                    if self.b_seen[was] > seen:
                        into = self._make_batch(holding, self.b_seen[was], base)
                    self._leave_batch(was, holding)
                    self.refreshed += 1
                    new = False
                else:
                    entry = self._make_entry(key, holding)
                    self.admitted += 1
                    new = True
                self.e_batch[entry] = into
                self.e_count[entry] = count
                self.e_rank[entry] = rank << 3 | tier
                self.b_left[into] += 1
                self._enter(entry, holding)
                rank += 1
                if new:
                    if self.tell is not None:
                        self.tell("added", holding, space, self.sought)
                    if tenant.keys_max >= 0 and tenant.keys > tenant.keys_max:
                        self.keep_quota(tenant, 8)
                    if self.entries > self.entries_max:
                        self._relieve()
        finally:
            # A batch that nobody leaves is lost for good, and there are only as many as entries.
            self.arrivals += rank
            self._leave_batch(batch, holding)

    def _relieve(self) -> None:
        """Take out one entry: one that waits after a clear, else the cap's victim."""
        if self.dead and self.purge(1):
            return
        while True:
            number = self.victims.items[0]
            weight = self.victims.majors[0]
            arrived = self.victims.minors[0]
            holding: Any = self.holdings[number]
            victim = self._weigh(holding)
            if self.weight == weight and self.weight_arrived == arrived:
                break
            self.victims.put(number, self.weight, self.weight_arrived)
        self._remove(victim, CAP)

    def keep_quota(self, tenant: Tenant, keys_max: int) -> int:
        """Take out a tenant's oldest keys beyond its quota, at most so many; returns how many entries went."""
        gone = 0
        while keys_max > 0 and tenant.keys_max >= 0 and tenant.keys > tenant.keys_max:
            key = tenant.first
            keys_max -= 1
            entry = self.k_head[key]
            while entry:
                after = self.e_next[entry]
                self._remove(entry, QUOTA)
                gone += 1
                entry = after
        return gone

    def _remove(self, entry: int, cause: int) -> None:
        key = self.e_key[entry]
        holding: Any = self.holdings[self.e_hold[entry]]
        space: Any = self.spaces[self.k_spot[key] >> 2]
        other = self.k_head[key]
        if other == entry:
            self.k_head[key] = self.e_next[entry]
        else:
            while self.e_next[other] != entry:
                other = self.e_next[other]
            self.e_next[other] = self.e_next[entry]
        self._leave(entry, holding)
        self._leave_batch(self.e_batch[entry], holding)
        self.credits[entry] = 0
        holding.size -= 1
        self.entries -= 1
        told = b""
        if holding.dead:
            self.waiting -= 1
        else:
            self._count(holding.tenant, cause, 1)
            if self.tell is not None:
                told = self.hash_of(key)
        if holding.size == 0:
            self.victims.drop(holding.number)
            self.empty.append(holding)
        self.e_hold[entry] = 0
        self.e_next[entry] = self.e_free
        self.e_free = entry
        if self.k_head[key] == 0:
            self._remove_key(key, space)
        if told and self.tell is not None:
            self.tell("evicted", holding, space, told)

    def _count(self, tenant: Tenant, cause: int, times: int) -> None:
        self.removed[1 if tenant.lfu else 0][cause] += times
        tenant.removed[cause] += times

    def evict(self, space: Space, holding: Holding, hashes: list[bytes]) -> int:
        """Take out a holding's entries of these hashes; returns how many there were."""
        gone = 0
        for sought in hashes:
            entry = self._entry_of(self.find(space.number, sought), holding.number)
            if entry:
                self._remove(entry, EVENT)
                gone += 1
        return gone

    def bury(self, holding: Holding) -> int:
        """Clear a holding: nothing of it is seen from now on; `purge` takes its entries out. Returns how many."""
        holding.dead = True
        self.depth[holding.number] = -1
        self.victims.drop(holding.number)
        self.waiting += holding.size
        self._count(holding.tenant, CLEAR, holding.size)
        self.dead.append(holding)
        return holding.size

    def purge(self, entries_max: int) -> int:
        """Take out entries of cleared holdings, at most so many; returns how many."""
        gone = 0
        while self.dead and gone < entries_max:
            holding = self.dead[len(self.dead) - 1]
            if holding.size == 0:
                self.dead.pop()
                continue
            entry = holding.first
            if not entry and holding.old is not None:
                entry = holding.old.items[0]
            self._remove(entry, CLEAR)
            gone += 1
        while self.dead and self.dead[len(self.dead) - 1].size == 0:
            self.dead.pop()
        return gone

    def sweep(self, now: float, entries_max: int, holdings_max: int) -> int:
        """Take out entries past their TTL, going on from where the last sweep stopped; returns how many."""
        gone = 0
        looked = 0
        while looked < holdings_max and gone < entries_max and looked < len(self.holdings):
            self.turn += 1
            if self.turn >= len(self.holdings):
                self.turn = 1 if len(self.holdings) > 1 else 0
            looked += 1
            holding: Any = self.holdings[self.turn]
            if holding is None or holding.dead:
                continue
            ttl_s = holding.tenant.ttl_s
            while gone < entries_max and holding.first and self._past(holding.first, now, ttl_s):
                self._remove(holding.first, TTL)
                gone += 1
            while (
                gone < entries_max
                and holding.old is not None
                and holding.old.size
                and self._past(holding.old.items[0], now, ttl_s)
            ):
                self._remove(holding.old.items[0], TTL)
                gone += 1
            if gone == entries_max:
                self.turn -= 1
        return gone

    def _past(self, entry: int, now: float, ttl_s: float) -> bool:
        past: bool = now - self.b_seen[self.e_batch[entry]] >= ttl_s
        return past

    def credit(self, space: Space, holding: Holding, hashes: list[bytes], slot: int) -> None:
        """One to each of these entries that there are, in a slot of time."""
        place = space.place
        lfu = space.tenant.lfu
        for sought in hashes:
            key = self.find(space.number, sought)
            entry = self._entry_of(key, holding.number)
            if not entry:
                continue
            before = self.k_slot_before[key]
            last = self.k_slot[key]
            if last and before != last:
                if before:
                    self._cool(place, before)
                if last >= place.hot_from:
                    place.hot[last] = place.hot.get(last, 0) + 1
            self.k_slot_before[key] = last
            self.k_slot[key] = slot
            if lfu and self.credits[entry] < CREDITS_MAX:
                self._leave(entry, holding)
                self.credits[entry] += 1
                self._enter(entry, holding)

    # Snapshots

    def rows(self, keys_max: int) -> list[tuple[Holding, Space, bytes, bool, int, int, float, int, float]]:
        """The entries of the next keys from the cursor on, which goes on: where, hash, whether that is a digest, count,
        tier, seen, credits, place. A key that moves while a walk goes on is met again at its new place."""
        found = []
        while self.cursor and keys_max > 0:
            key = self.cursor
            self.cursor = self.k_next[key]
            keys_max -= 1
            space: Any = self.spaces[self.k_spot[key] >> 2]
            digest = self.k_spot[key] & 3 == 2
            sought = self.hash_of(key)
            entry = self.k_head[key]
            while entry:
                holding: Any = self.holdings[self.e_hold[entry]]
                if not holding.dead:
                    seen = self.b_seen[self.e_batch[entry]]
                    rest = (self.e_count[entry], self.e_rank[entry] & 7, seen, self.credits[entry], self.arrived(entry))
                    found.append((holding, space, sought, digest, *rest))
                entry = self.e_next[entry]
        return found

    def bring_back(
        self,
        space: Space,
        holding: Holding,
        sought: bytes,
        digest: bool,
        count: int,
        tier: int,
        seen: float,
        credits: int,  # noqa: A002
        place: float,
    ) -> bool:
        """Put back an entry of a snapshot, unless there is a newer one."""
        key = self._find(space.number << 2 | 2, sought) if digest else self.find(space.number, sought)
        if self._entry_of(key, holding.number):
            return False
        if not key:
            key = self._make_key(space)
        entry = self._make_entry(key, holding)
        batch = self._make_batch(holding, seen, place)
        self.e_batch[entry] = batch
        self.e_count[entry] = count
        self.e_rank[entry] = tier
        self.b_left[batch] = 1
        self.credits[entry] = credits
        self._enter(entry, holding)
        if self.entries > self.entries_max:
            self._relieve()
        return True
