"""Choosing by route hints: the index, the lookup and the assignment memory that serve, on the trace's time.

1. The index hears what engines tell: what went when a prefill begins, new blocks when it is done, each
   `event_delay_ms` later. Nothing tells it what a policy chose, nor what was hit: engines do not tell that.
2. As a live feed does, what an engine still holds is told again before its TTL runs out: what is hit for an hour would
   otherwise be forgotten after half of one.
3. The assignment memory hears what was routed, as a fleet's provider tells it. No pressure is known unless it is
   reported, as a scraper would: every `PRESSURE_EVERY_S` seconds.
4. An answer without a replica goes to the one with the fewest requests in flight.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

import xxhash

from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.look import Grounds, never
from terraflow.hints.deciding.lookup import decide_lookup
from terraflow.hints.deciding.question import Query
from terraflow.hints.feed.settings import FRESH_S
from terraflow.hints.index.index import Index
from terraflow.hints.replay.fleet import Fleet, Served
from terraflow.hints.replay.trace import BLOCK_TOKENS, TraceRequest
from terraflow.hints.words import FLEET_SHARE_MIN, FULL_LOAD_REQUESTS, Entry, Report, Scope, Stats, Tier

SCOPE = Scope("replay", "trace", "mooncake-512")
PRESSURE_EVERY_S = 5.0
SWEEP_ENTRIES = 200


class Hinted:
    """One run's way of choosing; see the module."""

    def __init__(self, fleet: Fleet, *, blocks: int, seed: int, report_pressure: bool, event_delay_s: float) -> None:
        self._fleet = fleet
        self._index = Index(entries_max=max(1_000_000, 2 * blocks * len(fleet)))
        self._assigned = Assigned()
        self._grounds = Grounds(index=self._index, assigned=self._assigned, share_min=FLEET_SHARE_MIN)
        width = len(str(len(fleet) - 1))
        self._names = [f"replica-{number:0{width}}" for number in range(len(fleet))]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._assigned.join(SCOPE, self._names)
        self._seed, self._delay_s = seed, event_delay_s
        self._keys: dict[int, bytes] = {}
        self._sent: dict[int, tuple[list[bytes], int]] = {}
        self._held: list[OrderedDict[bytes, tuple[float, int]]] = [OrderedDict() for _ in self._names]
        self._told: deque[tuple[float, Callable[[float], object]]] = deque()
        self._pressure_at = 0.0 if report_pressure else float("inf")

    def choose(self, request: TraceRequest, now: float) -> int:
        """What the lookup ranks first."""
        self._hear(now)
        hashes, counts = self._chain(request)
        query = Query(
            tenant=SCOPE.tenant,
            model=SCOPE.model,
            scheme=SCOPE.scheme,
            block_hashes=hashes,
            block_token_counts=counts,
            prefix_token_count=request.input_length,
        )
        answer = decide_lookup(query, self._grounds, now, never)
        if answer.scored:
            chosen, matched = self._numbers[answer.scored[0].replica], answer.scored[0].matched_tokens
        else:
            chosen, matched = min(range(len(self._fleet)), key=self._fleet.in_flight.__getitem__), 0
        self._assigned.sent(SCOPE, "", self._names[chosen], hashes, request.input_length - matched, now)
        return chosen

    def begun(self, served: Served, request: TraceRequest, now: float) -> None:
        """Its evictions are told."""
        if served.removed:
            gone = [self._key(name) for name in served.removed]
            self._tell(now, lambda at: self._removed(served.replica, gone, at))

    def first_token(self, served: Served, request: TraceRequest, now: float) -> None:
        """Its new blocks are told."""
        if served.added:
            hashes, _ = self._chain(request)
            start = served.held - served.added
            counts = [min(at * BLOCK_TOKENS, request.input_length) for at in range(start + 1, served.held + 1)]
            self._tell(now, lambda at: self._added(served.replica, hashes[start : served.held], counts, at))

    def ended(self, served: Served, request: TraceRequest, now: float) -> None:
        """It is in flight no more."""
        hashes, _ = self._chain(request)
        self._assigned.ended(SCOPE, "", self._names[served.replica], hashes, True, now)

    def _hear(self, now: float) -> None:
        while self._pressure_at <= now:
            at, self._pressure_at = self._pressure_at, self._pressure_at + PRESSURE_EVERY_S
            for replica, busy in enumerate(self._fleet.in_flight):
                self._index.ingest(self._report(replica, (), Stats(pressure=min(1.0, busy / FULL_LOAD_REQUESTS))), at)
        while self._told and self._told[0][0] <= now:
            at, apply = self._told.popleft()
            apply(at)
        for replica, held in enumerate(self._held):
            old = []
            for key, (told_at, _) in held.items():
                if told_at > now - FRESH_S:
                    break
                old.append(key)
            if old:
                self._added(replica, old, [held[key][1] for key in old], now)
        self._index.sweep(now, SWEEP_ENTRIES)

    def _added(self, replica: int, hashes: list[bytes], counts: list[int], now: float) -> None:
        held = self._held[replica]
        for key, count in zip(hashes, counts, strict=True):
            held[key] = (now, count)
            held.move_to_end(key)
        self._index.ingest(self._report(replica, (Entry("", hashes, counts, int(Tier.MEMORY)),), None), now)

    def _removed(self, replica: int, hashes: list[bytes], now: float) -> None:
        held = self._held[replica]
        for key in hashes:
            held.pop(key, None)
        self._index.evict_many(SCOPE, self._names[replica], "", hashes, now)

    def _report(self, replica: int, entries: tuple[Entry, ...], stats: Stats | None) -> Report:
        tenant, model, scheme = SCOPE
        name = self._names[replica]
        return Report(replica=name, model=model, tenant=tenant, scheme=scheme, entries=entries, stats=stats)

    def _tell(self, now: float, apply: Callable[[float], object]) -> None:
        if self._delay_s:
            self._told.append((now + self._delay_s, apply))
        else:
            apply(now)

    def _chain(self, request: TraceRequest) -> tuple[list[bytes], list[int]]:
        hashes = [self._key(name) for name in request.hash_ids]
        counts = [BLOCK_TOKENS] * len(hashes)
        if hashes:
            counts[-1] = min(BLOCK_TOKENS, request.input_length - BLOCK_TOKENS * (len(hashes) - 1))
        return hashes, counts

    def _key(self, name: int) -> bytes:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = xxhash.xxh3_64_digest(name.to_bytes(8, "little"), seed=self._seed)
        return key
