"""Lookups: each replica's leading run over a chain of blocks.

1. What a run is so far lies in flat memory by holding; between lookups `depth` is 0, of a cleared holding -1.
2. A run is cut short where `VISITS_MAX` entries have been looked at: one hash may be asked for again and again.
3. A lookup waits for memory far longer than it counts, so what the next blocks need is fetched together.
"""

from __future__ import annotations

from typing import Any

from terraflow.hints.index.arrivals import HOLDINGS_MAX, Arrivals
from terraflow.hints.index.memory import region
from terraflow.hints.index.places import Holding, Space
from terraflow.hints.words import Held

COMPILED = not __file__.endswith(".py")

AHEAD = 32
"""Blocks of a chain that are fetched from memory together."""

VISITS_MAX = 1 << 18
"""Entries that one lookup looks at, to the end of the block that it is in: 8 ms of them, four replicas' of the
longest chain there may be."""


class Runs(Arrivals):
    """See the module. `marks`: entries that arrived up to there are degraded."""

    def __init__(self, entries_max: int) -> None:
        Arrivals.__init__(self, entries_max)
        self.depth = region("i", HOLDINGS_MAX + 1)
        self.oldest = region("d", HOLDINGS_MAX + 1)
        self.coldest = region("i", HOLDINGS_MAX + 1)
        self.tokens = region("q", HOLDINGS_MAX + 1)
        self.lost = region("i", HOLDINGS_MAX + 1)
        self.marks = region("d", HOLDINGS_MAX + 1)
        self.ahead = COMPILED
        self.near = region("i", AHEAD)
        self.codes = region("i", AHEAD)

    def live(self, holding: Holding, now: float) -> bool:
        """Whether it holds anything within the TTL."""
        return holding.seen.size > 0 and now + holding.seen.majors[0] < holding.tenant.ttl_s and not holding.dead

    def chain(
        self, space: Space, hashes: list[bytes], counts: list[int], now: float, exact: bool = False
    ) -> list[Held]:
        """Each replica's leading run over a chain; `exact`: of one hash, with the stored count as its tokens."""
        touched: list[Any] = []
        try:
            self._run(space, hashes, counts, now, exact, touched)
        except BaseException:
            for holding in touched:
                self.depth[holding.number] = 0
            raise
        return self._told(touched)

    def _run(
        self, space: Space, hashes: list[bytes], counts: list[int], now: float, exact: bool, touched: list[Any]
    ) -> None:
        ttl_s = space.tenant.ttl_s
        total = touched_from = touched_to = 0
        visits = 0
        i = 0
        n = len(hashes)
        while i < n and visits < VISITS_MAX:
            sought = hashes[i]
            if self.ahead and len(sought) == 8:
                if i >= touched_to:
                    touched_to = self._touch(space.number, hashes, i)
                    touched_from = i
                key = self._seek(space.number << 2, sought, self.codes[i - touched_from])
            else:
                key = self.find(space.number, sought)
            if not key:
                break
            entry = self.k_head[key]
            if not exact:
                total += counts[i]
            went_on = False
            while entry:
                at = entry
                entry = self.e_next[at]
                visits += 1
                number = self.e_hold[at]
                if self.depth[number] != i:
                    continue
                batch = self.e_batch[at]
                seen = self.b_seen[batch]
                if now - seen >= ttl_s:
                    continue
                rank = self.e_rank[at]
                if i == 0:
                    self.oldest[number] = seen
                    self.coldest[number] = rank & 7
                    self.lost[number] = 0
                    touched.append(self.holdings[number])
                else:
                    if seen < self.oldest[number]:
                        self.oldest[number] = seen
                    if rank & 7 > self.coldest[number]:
                        self.coldest[number] = rank & 7
                self.tokens[number] = self.e_count[at] if exact else total
                if self.marks[number] >= self.b_from[batch] + (rank >> 3):
                    self.lost[number] = 1
                self.depth[number] = i + 1
                went_on = True
            if not went_on:
                break
            i += 1

    def _touch(self, space: int, hashes: list[bytes], start: int) -> int:
        """Bring what the next blocks need near, all of them at a time: what each waits for alone is most of a lookup.

        Leaves the codes of their hashes in `codes`; returns where it stopped, which is before a hash of another kind.
        """
        i = start
        while i < len(hashes) and i < start + AHEAD and len(hashes[i]) == 8:
            self.codes[i - start] = self._code(space << 2, hashes[i])
            i += 1
        count = i - start
        near = self.near
        codes = self.codes
        buckets = self.buckets
        mask = self.mask
        at = 0
        while at < count:
            near[at] = buckets[codes[at] & mask]
            at += 1
        at = 0
        while at < count:
            near[at] = self.k_head[near[at]]
            at += 1
        at = 0
        while at < count:
            near[at] = self.e_next[near[at]]
            at += 1
        return i

    def _told(self, touched: list[Any]) -> list[Held]:
        found = []
        for holding in touched:
            number = holding.number
            found.append(
                Held(
                    holding.source.replica,
                    self.depth[number],
                    self.tokens[number],
                    self.oldest[number],
                    self.coldest[number],
                    self.lost[number] != 0,
                )
            )
            self.depth[number] = 0
        return found
