"""One engine, or one data-parallel rank of it: its stream, its mapping, and the replica that it is written as.

1. Frames go in; what the stream decides is written to the sink at once; what has to be asked of the engine comes out.
2. A batch that cannot be read is a frame without a batch: it is counted, and the stream makes a gap of it.
3. A large batch is read and written in steps, so that others get their turns: a step leaves mapping and sink as one.
4. A restart empties the mapping with the index: an engine's hashes mean nothing in its next life.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator

import msgspec
from xxhash import xxh3_64_intdigest

from terraflow.hints.events.parse import Batch, Unreadable, parse_steps
from terraflow.hints.events.steps import ended, in_turns
from terraflow.hints.feed.machine import State
from terraflow.hints.feed.mapping import Evicts, Holds, Mapping, MappingState
from terraflow.hints.feed.sink import Sink
from terraflow.hints.feed.stream import CLEAR, DEGRADE, HEAL, STOP, Apply, Ask, Command, Frame, Limits, Position, Stream
from terraflow.hints.words import Entry, Report, Scope


class Asked(msgspec.Struct, frozen=True):
    """What the engine is to be asked for: a replay from `start`, or, with None, nothing more."""

    start: int | None
    number: int


class SourceState(msgspec.Struct, kw_only=True):
    """A source at rest."""

    rank: int | None
    position: Position
    mapping: MappingState


def read_frame(sequence: int, payload: bytes) -> Frame:
    """A received frame; its batch is None if it cannot be read."""
    return ended(frame_steps(sequence, payload))


def frame_steps(sequence: int, payload: bytes) -> Generator[None, None, Frame]:
    """`read_frame` in steps of some ms."""
    batch: Batch | None
    try:
        batch = yield from parse_steps(payload)
    except Unreadable:
        batch = None
    return Frame(sequence, xxh3_64_intdigest(payload), len(payload), batch)


class Source:
    """A stream brought into a sink as one replica."""

    def __init__(
        self,
        sink: Sink,
        scope: Scope,
        replica: str,
        *,
        limits: Limits = Limits(),
        mapping: Mapping | None = None,
        position: Position | None = None,
    ) -> None:
        self.sink = sink
        self.scope = scope
        self.replica = replica
        self.stream = Stream(limits, position)
        self.mapping = Mapping() if mapping is None else mapping

    async def state(self, rank: int | None, turn: Callable[[], Awaitable[None]]) -> SourceState:
        """Everything that a restart of this service would lose, as of the call; `turn` gives others theirs."""
        position = self.stream.position()
        return SourceState(rank=rank, position=position, mapping=await in_turns(self.mapping.dump(), turn))

    def report_again(self, hashes: Iterable[bytes]) -> bool:
        """Tell the sink again which of the engine's blocks are held; whether the stream's state let it.

        Engines tell additions and removals, never hits: a block that is hit for hours would run out of its TTL.
        """
        if self.stream.state is not State.IN_SEQUENCE:
            return False
        for entry in self.mapping.entries(hashes):
            self._ingest((entry,))
        return True

    def tell_anew(self) -> None:
        """Clear the replica, and tell the sink everything that is known to be held: for a sink that lost track."""
        tenant, model, _ = self.scope
        self.sink.clear(tenant, model, self.replica)
        for entry in self.mapping.known():
            self._ingest((entry,))

    def steps(self, commands: list[Command]) -> Generator[None, None, list[Asked]]:
        """Do what the stream says of what has happened, in steps of some ms; what is to be asked of the engine comes
        back."""
        asked: list[Asked] = []
        orphaned: int | None = None
        tenant, model, _ = self.scope
        for command in commands:
            if type(command) is Apply:
                yield from self._apply(command.batch)
                if self.mapping.orphaned and orphaned is None:
                    orphaned = command.sequence
            elif type(command) is Ask:
                asked.append(Asked(command.start, command.number))
            elif command is CLEAR:
                orphaned = None
                self.mapping.empty()
                self.sink.clear(tenant, model, self.replica)
            elif command is DEGRADE:
                self.sink.degrade(tenant, model, self.replica)
            elif command is HEAL:
                self.sink.heal(tenant, model, self.replica)
            elif command is STOP:
                asked.append(Asked(None, 0))
        if orphaned is not None:
            asked += yield from self.steps(self.stream.orphan(orphaned))
        return asked

    def _apply(self, batch: Batch) -> Iterator[None]:
        tenant, model, _ = self.scope
        for writes in self.mapping.pieces(batch):
            for write in writes:
                if type(write) is Holds:
                    self._ingest(write.entries)
                elif type(write) is Evicts:
                    self.sink.evict_many(self.scope, self.replica, write.adapter, write.hashes)
                else:
                    self.sink.clear(tenant, model, self.replica)
            yield

    def _ingest(self, entries: tuple[Entry, ...]) -> None:
        tenant, model, scheme = self.scope
        self.sink.ingest(Report(replica=self.replica, model=model, tenant=tenant, scheme=scheme, entries=entries))
