"""Faults that hostile streams must show: a stream that ignores gaps, a restart that clears nothing, and the like."""

import random
from collections.abc import Iterator

from terraflow.hints.events.parse import Batch, Stored
from terraflow.hints.feed.machine import Input
from terraflow.hints.feed.mapping import Mapping, Write
from terraflow.hints.feed.source import Source
from terraflow.hints.feed.stream import CLEAR, Apply, Command, Frame, Stream
from tests.hints.feed.hostile import SCOPE, Faults, IndexSink, MakeSource


def lossy(rng: random.Random) -> Faults:
    """A wire that loses one in twenty, and does nothing else."""
    return Faults(
        lose=0.03,
        burst=2,
        double=0,
        swap=0,
        garble=0,
        restart=0,
        clear=0,
        deaf=0,
        replay=True,
        replay_fails=0,
        kept=10_000,
    )


def unanswered(rng: random.Random) -> Faults:
    """The same, and no replay to be had."""
    return lossy(rng)._replace(replay=False)


class IgnoresGaps(Stream):
    """Takes what comes for what was expected, and an unknown parent for nothing."""

    def orphan(self, sequence: int) -> list[Command]:
        return []

    def _name_live(self, frame: Frame) -> Input:
        named = super()._name_live(frame)
        return Input.NEXT if named is Input.AHEAD and frame.batch is not None else named


class KeepsAcrossRestarts(Stream):
    """Numbers anew without clearing."""

    def _restart(self, commands: list[Command]) -> None:
        super()._restart(commands)
        commands.remove(CLEAR)


class IgnoresSequences(Stream):
    """Applies whatever comes."""

    def live(self, frame: Frame) -> list[Command]:
        self.expected = frame.sequence + 1
        return [] if frame.batch is None else [Apply(frame.sequence, frame.batch)]


class OrphansAreRoots(Mapping):
    """Begins a chain wherever one is told of."""

    def pieces(self, batch: Batch) -> Iterator[list[Write]]:
        events = [
            event._replace(parent=None)
            if type(event) is Stored and event.parent is not None and event.parent not in self._blocks
            else event
            for event in batch.events
        ]
        return super().pieces(batch._replace(events=events))


def with_stream(stream: type[Stream]) -> MakeSource:
    """Sources with this stream."""

    def make(sink: IndexSink, replica: str) -> Source:
        source = Source(sink, SCOPE, replica)
        source.stream = stream()
        return source

    return make


class KeepsBlocksOnClear(IndexSink):
    """Clears nothing."""

    def clear(self, tenant: str, model: str, replica: str) -> object:
        return 0


def deaf_to_clears(sink: IndexSink, replica: str) -> Source:
    """A source whose clears go nowhere."""
    return Source(KeepsBlocksOnClear(sink.index), SCOPE, replica)


PLANTED: dict[str, MakeSource] = {
    "gaps_ignored": with_stream(IgnoresGaps),
    "sequences_ignored": with_stream(IgnoresSequences),
    "restart_clears_nothing": with_stream(KeepsAcrossRestarts),
    "clears_do_nothing": deaf_to_clears,
}
