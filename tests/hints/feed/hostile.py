"""Hostile event streams against a known truth: engines with a real cache, a wire that loses, doubles and reorders.

A fleet of simulated engines serves requests and evicts as engines do, each publishing numbered batches and answering
replays. Its batches reach a `Source` over a wire with faults; the sources write into one `Index`; lookups ask it. Every
answer is judged by the caches themselves: a hint is *wrong* if the replica that it names first does not hold the tokens
that it is said to hold, and *after the fact* if what it lacks was stored before a restart or clear that the source saw.
"""

import functools
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from terraflow.core.reasons import Lookup
from terraflow.hints.blocks import block_keys
from terraflow.hints.deciding.look import Grounds, never
from terraflow.hints.deciding.lookup import decide_lookup
from terraflow.hints.deciding.question import Query
from terraflow.hints.events.steps import ended
from terraflow.hints.feed.machine import Input
from terraflow.hints.feed.source import Asked, Source, read_frame
from terraflow.hints.feed.stream import Command
from terraflow.hints.index.index import Index
from terraflow.hints.policy.policies import CachePolicy, Policies
from terraflow.hints.words import Report, Scope, Stats

SCOPE = Scope("tenant", "model", "scheme")
BLOCK_TOKENS = 4
CHUNK_BLOCKS = 2
WRONG_MAX = 0.001
POLICIES = Policies(cache={SCOPE.tenant: CachePolicy(minimum_matched_tokens=1, affinity=False)})
pack = msgspec.msgpack.encode


class Faults(NamedTuple):
    """How bad a wire is. Shares of frames, but `restart` and `clear`: shares of steps."""

    lose: float
    burst: int
    double: float
    swap: float
    garble: float
    restart: float
    clear: float
    deaf: float
    replay: bool
    replay_fails: float
    kept: int


def faults(rng: random.Random) -> Faults:
    """A wire as bad as chance will have it."""
    return Faults(
        lose=rng.choice((0.0, 0.001, 0.005)),
        burst=rng.choice((1, 1, 4)),
        double=rng.choice((0.0, 0.02, 0.1)),
        swap=rng.choice((0.0, 0.005)),
        garble=rng.choice((0.0, 0.0, 0.002)),
        restart=rng.choice((0.0, 0.01, 0.02)),
        clear=rng.choice((0.0, 0.01)),
        deaf=rng.choice((0.0, 0.5)),
        replay=rng.random() < 0.95,
        replay_fails=rng.choice((0.0, 0.2)),
        kept=rng.choice((10_000, 10_000, 10_000, 40)),
    )


class Engine:
    """A prefix cache of `blocks_max` blocks that publishes what it does. Leaves are evicted first, oldest first."""

    def __init__(self, rng: random.Random, kept: int, blocks_max: int = 64) -> None:
        self.rng = rng
        self.blocks_max = blocks_max
        self.kept = kept
        self.life = 0
        self.stored_in: dict[bytes, int] = {}
        self.cache: OrderedDict[bytes, tuple[bytes, bytes | None]] = OrderedDict()
        self.salt = b""
        self.sequence = 0
        self.published: list[tuple[int, bytes, int]] = []
        self.clock = 0.0
        self.restart()

    def restart(self) -> None:
        self.life += 1
        self.salt = self.rng.randbytes(4)
        self.cache.clear()
        self.sequence = 0
        self.published = []

    def held(self, keys: Sequence[bytes]) -> int:
        """The tokens of the leading run that is cached."""
        run = 0
        for key in keys:
            if key not in self.cache:
                break
            run += BLOCK_TOKENS
        return run

    def clear(self) -> tuple[int, bytes, int]:
        self.cache.clear()
        self.life += 1
        return self.publish([["AllBlocksCleared"]])

    def serve(self, tokens: Sequence[int]) -> list[tuple[int, bytes, int]]:
        """Work on a prompt in chunks, a batch each; what this publishes."""
        keys = block_keys(tokens, BLOCK_TOKENS)
        fresh = 0
        while fresh < len(keys) and keys[fresh] in self.cache:
            self.cache.move_to_end(keys[fresh])
            fresh += 1
        return [
            self.prefill(tokens, keys, at, min(at + CHUNK_BLOCKS, len(keys)))
            for at in range(fresh, len(keys), CHUNK_BLOCKS)
        ]

    def prefill(self, tokens: Sequence[int], keys: list[bytes], start: int, end: int) -> tuple[int, bytes, int]:
        events: list[object] = []
        gone = self.evict(len(self.cache) + end - start - self.blocks_max, set(keys))
        if gone:
            events.append(["BlockRemoved", gone, "GPU"])
        parent = self.cache[keys[start - 1]][0] if start else None
        hashes = [self.salt + key for key in keys[start:end]]
        for at in range(start, end):
            self.cache[keys[at]] = (hashes[at - start], keys[at - 1] if at else None)
            self.stored_in[keys[at]] = self.life
        there = list(tokens[start * BLOCK_TOKENS : end * BLOCK_TOKENS])
        events.append(["BlockStored", hashes, parent, there, BLOCK_TOKENS])
        return self.publish(events)

    def evict(self, number: int, wanted: set[bytes]) -> list[bytes]:
        gone: list[bytes] = []
        while len(gone) < number:
            parents = {above for _, above in self.cache.values()}
            leaves = [key for key in self.cache if key not in parents and key not in wanted]
            if not leaves:
                break
            gone.append(self.cache.pop(leaves[0])[0])
        return gone

    def publish(self, events: list[object]) -> tuple[int, bytes, int]:
        self.clock += 0.25
        frame = (self.sequence, pack([self.clock + self.rng.random(), events, None]), self.life)
        self.sequence += 1
        self.published.append(frame)
        del self.published[: -self.kept]
        return frame


class IndexSink:
    """The index as a sink, at a time that the test sets."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.now = 0.0
        self.told: set[bytes] = set()

    def ingest(self, report: Report) -> object:
        for entry in report.entries:
            self.told.update(entry.hashes)
        return self.index.ingest(report, self.now)

    def evict_many(self, scope: Scope, replica: str, adapter: str | None, hashes: Sequence[bytes]) -> object:
        return self.index.evict_many(scope, replica, adapter, list(hashes), self.now)

    def clear(self, tenant: str, model: str, replica: str) -> object:
        return self.index.clear(tenant, model, replica, self.now)

    def degrade(self, tenant: str, model: str, replica: str) -> None:
        self.index.degrade(tenant, model, replica, self.now)

    def heal(self, tenant: str, model: str, replica: str) -> None:
        self.index.heal(tenant, model, replica)

    def stats(self, tenant: str, model: str, replica: str, stats: Stats) -> None:
        self.ingest(Report(replica=replica, model=model, tenant=tenant, scheme="", stats=stats))

    def register(self, tenant: str, model: str, replica: str, labels: Mapping[str, str]) -> None: ...


class Line:
    """The wire between an engine and its source: faults on the way there, replays on the way back."""

    def __init__(self, rng: random.Random, engine: Engine, source: Source, bad: Faults) -> None:
        self.rng = rng
        self.engine = engine
        self.source = source
        self.bad = bad
        self.seen_life = 0
        self.losing = 0
        self.held: tuple[int, bytes, int] | None = None
        self.asked: Asked | None = None
        self.answer_in = 0

    def send(self, frame: tuple[int, bytes, int]) -> None:
        if self.losing or self.rng.random() < self.bad.lose:
            self.losing = self.losing - 1 if self.losing else self.rng.randrange(self.bad.burst)
            return
        if self.held is None and self.rng.random() < self.bad.swap:
            self.held = frame
            return
        self.deliver(frame)
        if self.held is not None:
            held, self.held = self.held, None
            self.deliver(held)
        if self.rng.random() < self.bad.double:
            self.deliver(frame)
            earlier = self.rng.choice(self.engine.published)
            if earlier[0] < frame[0] and self.source.stream.expected > earlier[0]:
                self.double(earlier)

    def double(self, frame: tuple[int, bytes, int]) -> None:
        """An earlier frame once more: only one that did arrive can arrive twice."""
        if self.source.stream._seen.get(frame[0]) == read_frame(frame[0], frame[1]).digest:
            self.deliver(frame)

    def deliver(self, frame: tuple[int, bytes, int]) -> None:
        self.watch(frame[2], lambda: self.source.stream.live(read_frame(frame[0], frame[1])))

    def watch(self, life: int, act: Callable[[], list[Command]]) -> None:
        """Tell the stream and do what it says, and note if the source saw a restart or a clear by it."""
        source = self.source
        before = (source.stream.counters.restarts, source.mapping.counters.clears)
        for asked in ended(source.steps(act())):
            self.asked = None if asked.start is None else asked
            self.answer_in = self.rng.randrange(4)
        if (source.stream.counters.restarts, source.mapping.counters.clears) != before:
            self.seen_life = max(self.seen_life, life)

    def restart(self) -> None:
        if self.held is not None:
            held, self.held = self.held, None
            self.deliver(held)
        self.engine.restart()
        if self.asked is not None and self.rng.random() < 0.5:
            self.watch(self.engine.life, self.source.stream.replay_failed)
        if self.bad.replay and self.rng.random() >= self.bad.deaf:
            self.watch(self.engine.life, lambda: self.source.stream.happened(Input.RECONNECTED))

    def step(self) -> None:
        """Time for replays: an answer, a failure, another try."""
        stream = self.source.stream
        if self.asked is not None and self.answer_in <= 0:
            asked, self.asked = self.asked, None
            if not self.bad.replay or self.rng.random() < self.bad.replay_fails:
                self.watch(0, lambda: stream.replay_failed(not self.bad.replay))
            else:
                self.answer(asked)
        elif self.asked is not None:
            self.answer_in -= 1
        elif stream.wants_replay and self.bad.replay and self.rng.random() < 0.3:
            self.watch(0, lambda: stream.happened(Input.DUE))

    def answer(self, asked: Asked) -> None:
        assert asked.start is not None
        stream = self.source.stream
        for sequence, payload, life in list(self.engine.published):
            if sequence >= asked.start and stream.asking == asked.number:
                self.watch(life, functools.partial(stream.replayed, read_frame(sequence, payload)))
        if stream.asking == asked.number:
            self.watch(self.engine.life, stream.replay_ended)


class Judged(NamedTuple):
    """What a fleet's hints came to."""

    streams: int
    hints: int
    wrong: int
    after_the_fact: int
    gaps: int
    restarts: int
    degraded: int


MakeSource = Callable[[IndexSink, str], Source]


def make_source(sink: IndexSink, replica: str) -> Source:
    return Source(sink, SCOPE, replica)


class Fleet:
    """Engines, their lines, one index."""

    def __init__(
        self, seed: int, make: MakeSource, engines: int = 4, wire: Callable[[random.Random], Faults] = faults
    ) -> None:
        self.rng = random.Random(seed)
        self.index = Index()
        self.grounds = Grounds(index=self.index, policies=POLICIES)
        self.sink = IndexSink(self.index)
        self.lines: dict[str, Line] = {}
        for at in range(engines):
            bad = wire(self.rng)
            replica = f"engine-{at}"
            self.lines[replica] = Line(self.rng, Engine(self.rng, bad.kept), make(self.sink, replica), bad)
        self.topics = [[self.rng.randrange(50_000) for _ in range(16)] for _ in range(5)]
        self.talks: list[list[int]] = []
        self.past: list[list[int]] = []
        self.hints = self.wrong = self.after = 0

    def prompt(self) -> list[int]:
        """A talk that goes on, or a new one under a common beginning."""
        rng = self.rng
        if not self.talks or rng.random() < 0.3:
            self.talks.append([*rng.choice(self.topics), *(rng.randrange(50_000) for _ in range(8))])
            self.past = [*self.past, *self.talks[:-30]][-60:]
            del self.talks[:-30]
        at = rng.randrange(len(self.talks))
        if len(self.talks[at]) < 64:
            self.talks[at] = [*self.talks[at], *(rng.randrange(50_000) for _ in range(BLOCK_TOKENS))]
        return self.talks[at]

    def hint(self, tokens: Sequence[int]) -> str | None:
        """The replica that a lookup names first; judged."""
        keys = block_keys(tokens, BLOCK_TOKENS)
        query = Query(
            tenant=SCOPE.tenant, model=SCOPE.model, scheme=SCOPE.scheme,
            block_hashes=keys, block_token_counts=[BLOCK_TOKENS] * len(keys),
        )  # fmt: skip
        answer = decide_lookup(query, self.grounds, self.sink.now, never)
        if answer.reason is not Lookup.PREFIX_MATCH:
            return None
        best = answer.scored[0]
        line = self.lines[best.replica]
        self.hints += 1
        held = line.engine.held(keys)
        if held < best.matched_tokens:
            self.wrong += 1
            lacking = keys[held // BLOCK_TOKENS : best.matched_tokens // BLOCK_TOKENS]
            lives = [line.engine.stored_in.get(key, 0) for key in lacking if key not in line.engine.cache]
            self.after += any(life < line.seen_life for life in lives)
        return best.replica

    def run(self, steps: int) -> Judged:
        rng = self.rng
        for _ in range(steps):
            self.sink.now += rng.random()
            tokens = self.prompt()
            named = self.hint(tokens)
            if self.past:
                self.hint(rng.choice(self.past))
            chosen = named if named is not None and rng.random() < 0.7 else rng.choice(list(self.lines))
            line = self.lines[chosen]
            if rng.random() < line.bad.restart:
                line.restart()
            if rng.random() < line.bad.clear:
                line.send(line.engine.clear())
            for frame in line.engine.serve(tokens):
                line.send(self.garbled(line, frame))
            for other in self.lines.values():
                other.step()
        counters = [line.source.stream.counters for line in self.lines.values()]
        return Judged(
            len(self.lines), self.hints, self.wrong, self.after,
            sum(c.gaps for c in counters), sum(c.restarts for c in counters), sum(c.degraded for c in counters),
        )  # fmt: skip

    def garbled(self, line: Line, frame: tuple[int, bytes, int]) -> tuple[int, bytes, int]:
        """Sometimes an engine publishes what nobody can read, and would again."""
        if self.rng.random() >= line.bad.garble:
            return frame
        bad = (frame[0], b"\xc1" + frame[1], frame[2])
        line.engine.published = [bad if kept is frame else kept for kept in line.engine.published]
        return bad


def judge(
    make: MakeSource, fleets: int, *, first: int = 0, steps: int = 400, wire: Callable[[random.Random], Faults] = faults
) -> Judged:
    """What so many fleets of four come to, by their seeds."""
    rounds = [Fleet(seed, make, wire=wire).run(steps) for seed in range(first, first + fleets)]
    return Judged(*map(sum, zip(*rounds, strict=True)))
