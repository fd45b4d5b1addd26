"""The state of one engine stream, as a table.

An engine numbers its batches from 0 and numbers anew when it starts again: each life of the engine is an *epoch*. What
the index says of its cache is right as long as every batch of the epoch has been applied, in order. So the machine
tracks one number, the sequence that is expected next, and one doubt: the *hole*, the first sequence that may be
missing.

- **In sequence**: nothing is missing. Batches are applied as they come. The first one expected is 0, so that a first
  sequence above 0 is a gap like any other.
- **Replaying**: something may be missing and the engine has been asked for it. Replayed batches are applied; live ones
  are buffered, since what they remove may stand in the hole.
- **Gap**: something is missing, the engine did not answer, and it will be asked again. Live batches are buffered.
- **Stale**: something is missing and is not coming soon, or ever. What the index holds is degraded; live batches are
  applied. A hole that a replay may still fill is asked for again, from its beginning.

How a restart is told from a loss:

- A live sequence that lies behind, or that is known with another payload, can only come from another epoch. The same
  sequence with the same payload is a duplicate.
- A replay is asked for from one batch *before* the hole. That batch is known: if it comes back with another payload, or
  if nothing comes back at all, the epoch is another. A reconnected socket is therefore answered with a replay, even if
  nothing seems to be missing: an engine that restarted and caught up with its former sequence looks the same otherwise.
- A replay is the truth of the moment. What was buffered before it was asked for and is not in it belongs to no epoch
  that still is: it is dropped.

A restart clears the source: nothing of a former epoch is in the engine's cache. A batch that says that everything is
gone closes every hole before it, since nothing that is missing could matter. A parent that nobody knows is a hole of
unknown place: the engine is asked from the batch that named it, and if the epoch is the same, it is past filling.

A batch that cannot be read is a hole that no replay fills, since it would be sent again as it was.

Rows without a next state settle: in sequence, or stale while something is missing that nothing can bring. Whoever
enters *in sequence* is healed; whoever settles in *stale* is degraded, unless that was done on the way.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Where a stream stands."""

    IN_SEQUENCE = "in sequence"
    GAP = "gap"
    REPLAYING = "replaying"
    STALE = "stale"


class Input(StrEnum):
    """What may happen to it."""

    NEXT = "the batch expected"
    FILLS = "the batch expected, the last one missing"
    AHEAD = "a batch beyond the expected"
    CLEARED = "a batch, no older than the expected, that clears all"
    DUPLICATE = "a batch applied before"
    BACKWARD = "a batch of another epoch"
    GARBLED = "the batch expected, unreadable"
    ORPHAN = "a parent unknown"
    OVERFLOW = "the buffer is full"
    REPLAYED = "replay: the batch expected"
    REPLAYED_BEFORE = "replay: a batch applied before"
    REPLAYED_OTHER = "replay: another payload for a batch applied"
    REPLAYED_BEYOND = "replay: begins beyond the hole"
    REPLAYED_GARBLED = "replay: the batch expected, unreadable"
    ENDED = "replay: complete"
    ENDED_SHORT = "replay: ended, more is missing"
    ENDED_NOTHING = "replay: the engine has less than was applied"
    FAILED = "replay: no answer"
    EXHAUSTED = "replay: no answer, the last try"
    DUE = "time to ask again"
    RECONNECTED = "the connection is back"
    SILENT = "nothing heard for two heartbeats"
    RESTARTED = "the engine's counters went back"


class Do(StrEnum):
    """What a row does, in its order."""

    APPLY = "apply the batch"
    BUFFER = "keep the batch"
    DRAIN = "apply what was kept"
    OPEN = "note the hole"
    ASK = "ask for a replay"
    STOP = "abandon the replay"
    LOSE = "give up the hole"
    DEGRADE = "degrade what is held"
    CLOSE = "no hole is left"
    RESTART = "a new epoch: clear"
    AGAIN = "look at the batch again"
    COUNT = "count it"


class Row(NamedTuple):
    """A row of the table; `then` is None where the stream settles."""

    do: tuple[Do, ...]
    then: State | None


_S, _G, _R, _L = State.IN_SEQUENCE, State.GAP, State.REPLAYING, State.STALE
_I, _D = Input, Do

# fmt: off
TABLE: dict[tuple[State, Input], Row] = {
    (_S, _I.NEXT):             Row((_D.APPLY,), _S),
    (_S, _I.FILLS):            Row((_D.APPLY,), _S),
    (_S, _I.AHEAD):            Row((_D.OPEN, _D.BUFFER, _D.ASK), _R),
    (_S, _I.CLEARED):          Row((_D.CLOSE, _D.APPLY), _S),
    (_S, _I.DUPLICATE):        Row((_D.COUNT,), _S),
    (_S, _I.BACKWARD):         Row((_D.RESTART, _D.AGAIN), _S),
    (_S, _I.GARBLED):          Row((_D.OPEN, _D.BUFFER, _D.ASK), _R),
    (_S, _I.ORPHAN):           Row((_D.OPEN, _D.ASK), _R),
    (_S, _I.OVERFLOW):         Row((), _S),
    (_S, _I.REPLAYED):         Row((), _S),
    (_S, _I.REPLAYED_BEFORE):  Row((), _S),
    (_S, _I.REPLAYED_OTHER):   Row((), _S),
    (_S, _I.REPLAYED_BEYOND):  Row((), _S),
    (_S, _I.REPLAYED_GARBLED): Row((), _S),
    (_S, _I.ENDED):            Row((), _S),
    (_S, _I.ENDED_SHORT):      Row((), _S),
    (_S, _I.ENDED_NOTHING):    Row((), _S),
    (_S, _I.FAILED):           Row((), _S),
    (_S, _I.EXHAUSTED):        Row((), _S),
    (_S, _I.DUE):              Row((), _S),
    (_S, _I.RECONNECTED):      Row((_D.OPEN, _D.ASK), _R),
    (_S, _I.SILENT):           Row((_D.OPEN, _D.DEGRADE), _L),
    (_S, _I.RESTARTED):        Row((_D.RESTART, _D.OPEN, _D.ASK), _R),

    (_G, _I.NEXT):             Row((_D.BUFFER,), _G),
    (_G, _I.FILLS):            Row((_D.APPLY, _D.DRAIN, _D.CLOSE), None),
    (_G, _I.AHEAD):            Row((_D.BUFFER,), _G),
    (_G, _I.CLEARED):          Row((_D.CLOSE, _D.APPLY), _S),
    (_G, _I.DUPLICATE):        Row((_D.COUNT,), _G),
    (_G, _I.BACKWARD):         Row((_D.RESTART, _D.AGAIN), _S),
    (_G, _I.GARBLED):          Row((_D.BUFFER,), _G),
    (_G, _I.ORPHAN):           Row((), _G),
    (_G, _I.OVERFLOW):         Row((_D.DEGRADE, _D.DRAIN), _L),
    (_G, _I.REPLAYED):         Row((), _G),
    (_G, _I.REPLAYED_BEFORE):  Row((), _G),
    (_G, _I.REPLAYED_OTHER):   Row((), _G),
    (_G, _I.REPLAYED_BEYOND):  Row((), _G),
    (_G, _I.REPLAYED_GARBLED): Row((), _G),
    (_G, _I.ENDED):            Row((), _G),
    (_G, _I.ENDED_SHORT):      Row((), _G),
    (_G, _I.ENDED_NOTHING):    Row((), _G),
    (_G, _I.FAILED):           Row((), _G),
    (_G, _I.EXHAUSTED):        Row((), _G),
    (_G, _I.DUE):              Row((_D.ASK,), _R),
    (_G, _I.RECONNECTED):      Row((_D.ASK,), _R),
    (_G, _I.SILENT):           Row((_D.DEGRADE, _D.DRAIN), _L),
    (_G, _I.RESTARTED):        Row((_D.RESTART, _D.OPEN, _D.ASK), _R),

    (_R, _I.NEXT):             Row((_D.BUFFER,), _R),
    (_R, _I.FILLS):            Row((_D.STOP, _D.APPLY, _D.DRAIN, _D.CLOSE), None),
    (_R, _I.AHEAD):            Row((_D.BUFFER,), _R),
    (_R, _I.CLEARED):          Row((_D.STOP, _D.CLOSE, _D.APPLY), _S),
    (_R, _I.DUPLICATE):        Row((_D.COUNT,), _R),
    (_R, _I.BACKWARD):         Row((_D.STOP, _D.RESTART, _D.AGAIN), _S),
    (_R, _I.GARBLED):          Row((_D.BUFFER,), _R),
    (_R, _I.ORPHAN):           Row((_D.LOSE,), _R),
    (_R, _I.OVERFLOW):         Row((_D.STOP, _D.DEGRADE, _D.DRAIN), _L),
    (_R, _I.REPLAYED):         Row((_D.APPLY,), _R),
    (_R, _I.REPLAYED_BEFORE):  Row((), _R),
    (_R, _I.REPLAYED_OTHER):   Row((_D.STOP, _D.RESTART, _D.OPEN, _D.ASK), _R),
    (_R, _I.REPLAYED_BEYOND):  Row((_D.LOSE, _D.DEGRADE, _D.APPLY), _R),
    (_R, _I.REPLAYED_GARBLED): Row((_D.LOSE, _D.DEGRADE, _D.APPLY), _R),
    (_R, _I.ENDED):            Row((_D.DRAIN, _D.CLOSE), None),
    (_R, _I.ENDED_SHORT):      Row((_D.DRAIN, _D.OPEN, _D.ASK), _R),
    (_R, _I.ENDED_NOTHING):    Row((_D.RESTART,), _S),
    (_R, _I.FAILED):           Row((_D.STOP,), _G),
    (_R, _I.EXHAUSTED):        Row((_D.STOP, _D.DEGRADE, _D.DRAIN), _L),
    (_R, _I.DUE):              Row((), _R),
    (_R, _I.RECONNECTED):      Row((_D.STOP, _D.ASK), _R),
    (_R, _I.SILENT):           Row((_D.STOP, _D.DEGRADE, _D.DRAIN), _L),
    (_R, _I.RESTARTED):        Row((_D.STOP, _D.RESTART, _D.OPEN, _D.ASK), _R),

    (_L, _I.NEXT):             Row((_D.APPLY,), _L),
    (_L, _I.FILLS):            Row((_D.APPLY, _D.CLOSE), None),
    (_L, _I.AHEAD):            Row((_D.OPEN, _D.BUFFER, _D.ASK), _R),
    (_L, _I.CLEARED):          Row((_D.CLOSE, _D.APPLY), _S),
    (_L, _I.DUPLICATE):        Row((_D.COUNT,), _L),
    (_L, _I.BACKWARD):         Row((_D.RESTART, _D.AGAIN), _S),
    (_L, _I.GARBLED):          Row((_D.OPEN, _D.BUFFER, _D.ASK), _R),
    (_L, _I.ORPHAN):           Row((), _L),
    (_L, _I.OVERFLOW):         Row((), _L),
    (_L, _I.REPLAYED):         Row((), _L),
    (_L, _I.REPLAYED_BEFORE):  Row((), _L),
    (_L, _I.REPLAYED_OTHER):   Row((), _L),
    (_L, _I.REPLAYED_BEYOND):  Row((), _L),
    (_L, _I.REPLAYED_GARBLED): Row((), _L),
    (_L, _I.ENDED):            Row((), _L),
    (_L, _I.ENDED_SHORT):      Row((), _L),
    (_L, _I.ENDED_NOTHING):    Row((), _L),
    (_L, _I.FAILED):           Row((), _L),
    (_L, _I.EXHAUSTED):        Row((), _L),
    (_L, _I.DUE):              Row((_D.OPEN, _D.ASK), _R),
    (_L, _I.RECONNECTED):      Row((_D.OPEN, _D.ASK), _R),
    (_L, _I.SILENT):           Row((_D.DEGRADE,), _L),
    (_L, _I.RESTARTED):        Row((_D.RESTART, _D.OPEN, _D.ASK), _R),
}
# fmt: on
