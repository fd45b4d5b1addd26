"""One engine stream: names what has happened for the table of `machine`, and does what the row says.

1. Pure: frames and failures in, commands out, in the order in which they are to be done.
2. Everything kept is bounded: buffered frames by number and bytes, digests by number.
3. Counters only grow.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from terraflow.hints.events.parse import Batch
from terraflow.hints.feed.machine import TABLE, Do, Input, State

ORPHAN_OVERLAP = 256
"""How many batches before an unknown parent are compared with the engine's: as many as a restart may have hidden in."""


class Frame(NamedTuple):
    """A received batch: `digest` tells payloads apart, `size` is in bytes, `batch` is None if it cannot be read."""

    sequence: int
    digest: int
    size: int
    batch: Batch | None


class Apply(NamedTuple):
    """Bring a batch into the index."""

    sequence: int
    batch: Batch


class Ask(NamedTuple):
    """Ask the engine for its batches from a sequence on; `number` tells this replay from those abandoned."""

    start: int
    number: int


class Told(NamedTuple):
    """What else the shell is to do, by name."""

    what: str


CLEAR = Told("clear")
DEGRADE = Told("degrade")
HEAL = Told("heal")
STOP = Told("stop")

Command = Apply | Ask | Told


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one stream."""

    buffered_max: int = 10_000
    """Frames; an engine keeps as many for a replay unless told otherwise."""
    buffered_bytes_max: int = 64 << 20
    digests_max: int = 4_096
    tries_max: int = 3


class Counters(msgspec.Struct, kw_only=True):
    """What has happened to a stream."""

    batches: int = 0
    gaps: int = 0
    replays: int = 0
    replays_completed: int = 0
    replays_failed: int = 0
    restarts: int = 0
    duplicates: int = 0
    undecodable: int = 0
    lost: int = 0
    strays: int = 0
    overflows: int = 0
    degraded: int = 0
    healed: int = 0
    silences: int = 0


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream stands, to go on from after a restart of this service."""

    epoch: int
    expected: int
    digest: int | None
    lost: bool


class _Replay:
    __slots__ = ("buffered_to", "head", "last", "number", "probing")

    def __init__(self, number: int, head: int, buffered_to: int, probing: bool) -> None:
        self.number = number
        self.head = head
        self.buffered_to = buffered_to
        self.probing = probing
        self.last = -1


class Stream:
    """A stream's state and what is known of its sequences."""

    def __init__(self, limits: Limits = Limits(), position: Position | None = None) -> None:
        self.state = State.IN_SEQUENCE
        self.epoch = 0
        self.expected = 0
        self.hole: int | None = None
        self.lost = False
        self.degraded = False
        self.counters = Counters()
        self.limits = limits
        self._resume = 0
        self._tries = 0
        self._asked = 0
        self._replay: _Replay | None = None
        self._probing = False
        self._overlap = 1
        self._buffer: dict[int, Frame] = {}
        self._buffered_bytes = 0
        self._seen: dict[int, int] = {}
        self._before: dict[int, int] = {}
        if position is not None:
            self.epoch, self.expected, self.lost = position.epoch, position.expected, position.lost
            self.state = State.STALE if self.lost else State.IN_SEQUENCE
            if position.digest is not None:
                self._seen[position.expected - 1] = position.digest

    def position(self) -> Position:
        """Where it stands; a hole that is open counts as not yet passed."""
        expected = self._head() if self.hole is None else min(self.hole, self._head())
        return Position(epoch=self.epoch, expected=expected, digest=self._seen.get(expected - 1), lost=self.lost)

    @property
    def asking(self) -> int | None:
        """The number of the replay that is under way."""
        return None if self._replay is None else self._replay.number

    @property
    def wants_replay(self) -> bool:
        """Whether it is to be told that asking again is due."""
        return self.state is State.GAP or (self.state is State.STALE and self.hole is not None)

    # What may happen

    def live(self, frame: Frame) -> list[Command]:
        """A frame came from the socket that engines publish on."""
        if frame.batch is None:
            self.counters.undecodable += 1
        return self._do(self._name_live(frame), frame)

    def replayed(self, frame: Frame) -> list[Command]:
        """A frame came in answer to the replay that is under way."""
        replay = self._replay
        if replay is None:
            return []
        before, replay.last = replay.last, max(replay.last, frame.sequence)
        kept = self._buffer.get(frame.sequence)
        if kept is not None and kept.digest != frame.digest:
            self._unbuffer(frame.sequence)
            self.counters.strays += 1
        if frame.batch is None and kept is None and frame.sequence >= self.expected:
            self.counters.undecodable += 1
        happened = self._name_replayed(frame)
        if happened is Input.REPLAYED_BEYOND and before == self.expected - 1 >= 0:
            return self.replay_failed()
        return self._do(happened, frame)

    def replay_ended(self) -> list[Command]:
        """The engine says that it has sent everything it has."""
        replay = self._replay
        if replay is None:
            return []
        if replay.last < replay.head - 1:
            return self._do(Input.ENDED_NOTHING)
        for sequence in [at for at in self._buffer if replay.last < at <= replay.buffered_to]:
            self._unbuffer(sequence)
            self.counters.strays += 1
        self.counters.replays_completed += 1
        if self._closed_from(self.expected):
            return self._do(Input.ENDED)
        self._tries += 1
        return self._do(Input.ENDED_SHORT if self._tries < self.limits.tries_max else Input.EXHAUSTED)

    def replay_failed(self, final: bool = False) -> list[Command]:
        """No answer, or no more of it: what came is kept, and the rest is asked for. `final`: there is nobody to ask.

        ZeroMQ drops what an answering socket cannot send at once, so that an answer may lack its middle.
        """
        if self._replay is None:
            return []
        self.counters.replays_failed += 1
        self._tries += 1
        if self.hole is not None and self.expected > self.hole:
            self.hole, self._tries = self.expected, 0
        last = final or self._tries >= self.limits.tries_max
        return self._do(Input.EXHAUSTED if last else Input.FAILED)

    def orphan(self, sequence: int) -> list[Command]:
        """A batch that was applied named a parent that nobody knows."""
        if self.state is State.IN_SEQUENCE:
            self._overlap = ORPHAN_OVERLAP
            self.hole = sequence
        return self._do(Input.ORPHAN)

    def happened(self, what: Input) -> list[Command]:
        """One of DUE, RECONNECTED, SILENT, RESTARTED."""
        if what is Input.SILENT:
            self.counters.silences += 1
        if what is Input.RECONNECTED:
            self._tries = 0
            self._probing = True
        seldom = what is Input.DUE and self.state is State.STALE
        commands = self._do(what)
        if seldom:
            self._tries = self.limits.tries_max - 1
        return commands

    # Naming

    def _head(self) -> int:
        return max(self.expected, self._resume)

    def _name_live(self, frame: Frame) -> Input:
        sequence, digest, head = frame.sequence, frame.digest, self._head()
        if self._seen.get(sequence) == digest:
            return Input.DUPLICATE
        if sequence < head:
            return Input.BACKWARD
        kept = self._buffer.get(sequence)
        if kept is not None:
            return Input.DUPLICATE if kept.digest == digest else Input.BACKWARD
        if sequence > self.expected and self._before.get(sequence) == digest:
            return Input.DUPLICATE
        if frame.batch is not None and frame.batch.clears:
            return Input.CLEARED
        if sequence > self.expected:
            return Input.AHEAD
        if frame.batch is None:
            return Input.GARBLED
        return Input.FILLS if self._fills(sequence) else Input.NEXT

    def _fills(self, sequence: int) -> bool:
        """Whether nothing is missing after it. While the epoch is in question only the engine's answer tells that."""
        if self.hole != sequence or (self._replay is not None and self._replay.probing):
            return False
        return self._closed_from(sequence + 1) and not (self.state is State.STALE and self.lost)

    def _closed_from(self, sequence: int) -> bool:
        """Whether what is buffered follows on each other, from `sequence` on."""
        return all(at in self._buffer for at in range(sequence, sequence + len(self._buffer)))

    def _name_replayed(self, frame: Frame) -> Input:
        known = self._seen.get(frame.sequence)
        if known is not None and known != frame.digest:
            return Input.REPLAYED_OTHER
        if frame.sequence < self.expected:
            return Input.REPLAYED_BEFORE
        if frame.sequence > self.expected:
            return Input.REPLAYED_BEYOND
        return Input.REPLAYED if frame.batch is not None else Input.REPLAYED_GARBLED

    # Doing

    def _do(self, happened: Input, frame: Frame | None = None) -> list[Command]:
        row = TABLE[self.state, happened]
        commands: list[Command] = []
        again = False
        for do in row.do:
            if do is Do.AGAIN:
                again = True
            else:
                self._act(do, happened, frame, row.then, commands)
        self._enter(row.then, commands)
        if again and frame is not None:
            commands += self._do(self._name_live(frame), frame)
        elif self.state in (State.GAP, State.REPLAYING) and self._overfull():
            self.counters.overflows += 1
            commands += self._do(Input.OVERFLOW)
        return commands

    def _act(self, do: Do, happened: Input, frame: Frame | None, then: State | None, commands: list[Command]) -> None:
        if do is Do.APPLY and frame is not None:
            self._apply(frame, commands)
        elif do is Do.BUFFER and frame is not None:
            self._buffer[frame.sequence] = frame
            self._buffered_bytes += frame.size
        elif do is Do.DRAIN:
            self._drain(then is State.STALE, commands)
        elif do is Do.OPEN:
            self._open(happened)
        elif do is Do.ASK:
            self._ask(commands)
        elif do is Do.STOP:
            self._stop(commands)
        elif do is Do.LOSE:
            self._lose()
        elif do is Do.DEGRADE:
            self._degrade(commands)
        elif do is Do.CLOSE:
            self._close(happened, frame)
        elif do is Do.RESTART:
            self._restart(commands)
        elif do is Do.COUNT:
            self.counters.duplicates += 1

    def _enter(self, then: State | None, commands: list[Command]) -> None:
        if then is None:
            then = State.STALE if self.lost else State.IN_SEQUENCE
            if then is State.STALE and not self.degraded:
                self._degrade(commands)
        if then is State.IN_SEQUENCE and self.degraded and not self.lost:
            self.degraded = False
            self.counters.healed += 1
            commands.append(HEAL)
        self.state = then

    def _apply(self, frame: Frame, commands: list[Command]) -> None:
        self.expected = frame.sequence + 1
        if frame.sequence in self._buffer:
            self._unbuffer(frame.sequence)
        self._seen.pop(frame.sequence, None)
        self._seen[frame.sequence] = frame.digest
        if len(self._seen) > self.limits.digests_max:
            del self._seen[next(iter(self._seen))]
        if frame.batch is None:
            return
        if frame.batch.clears:
            self.lost = False
        self.counters.batches += 1
        commands.append(Apply(frame.sequence, frame.batch))

    def _drain(self, jumping: bool, commands: list[Command]) -> None:
        for sequence in sorted(self._buffer):
            if sequence < self.expected:
                self._unbuffer(sequence)
                continue
            if sequence > self.expected and not jumping:
                break
            frame = self._unbuffer(sequence)
            if frame.batch is None:
                self._lose()
                self._degrade(commands)
            self._apply(frame, commands)

    def _open(self, happened: Input) -> None:
        self.counters.gaps += happened in (Input.AHEAD, Input.GARBLED, Input.ORPHAN)
        if happened is Input.ENDED_SHORT:
            self.hole = self.expected
        else:
            self._tries = 0
            self.hole = self.expected if self.hole is None else min(self.hole, self.expected)

    def _ask(self, commands: list[Command]) -> None:
        hole = self.expected if self.hole is None else self.hole
        self._resume = self._head()
        self.expected = hole
        self._asked += 1
        self.counters.replays += 1
        self._replay = _Replay(self._asked, self._resume, max(self._buffer, default=-1), self._probing)
        commands.append(Ask(max(0, hole - self._overlap), self._asked))

    def _stop(self, commands: list[Command]) -> None:
        self._replay = None
        self.expected = self._head()
        commands.append(STOP)

    def _lose(self) -> None:
        self.counters.lost += not self.lost
        self.lost = True

    def _degrade(self, commands: list[Command]) -> None:
        self.degraded = True
        self.counters.degraded += 1
        commands.append(DEGRADE)

    def _close(self, happened: Input, frame: Frame | None) -> None:
        if happened is Input.CLEARED and frame is not None:
            self._empty()
            self.lost = False
            self.expected = frame.sequence
        self._settle()

    def _restart(self, commands: list[Command]) -> None:
        self.epoch += 1
        self.counters.restarts += 1
        self.expected = 0
        self._before, self._seen = self._seen, {}
        self._empty()
        self._settle()
        self.lost = self.degraded = False
        commands += (CLEAR, HEAL)

    def _settle(self) -> None:
        self.hole = self._replay = None
        self._resume = self._tries = 0
        self._probing = False
        self._overlap = 1

    def _empty(self) -> None:
        self._buffer.clear()
        self._buffered_bytes = 0

    def _unbuffer(self, sequence: int) -> Frame:
        frame = self._buffer.pop(sequence)
        self._buffered_bytes -= frame.size
        return frame

    def _overfull(self) -> bool:
        return len(self._buffer) > self.limits.buffered_max or self._buffered_bytes > self.limits.buffered_bytes_max
