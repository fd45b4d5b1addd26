"""What a stream does with losses, duplicates, restarts and replays, without a socket."""

import random

import pytest

from terraflow.hints.events.parse import Batch, Cleared
from terraflow.hints.feed.machine import Input, State
from terraflow.hints.feed.stream import CLEAR, DEGRADE, HEAL, STOP, Apply, Ask, Frame, Limits, Stream

EMPTY = Batch([])


def frame(sequence: int, life: int = 0, batch: Batch | None = EMPTY) -> Frame:
    return Frame(sequence, life * 1_000 + sequence, 10, batch)


def applied(commands) -> list[int]:
    return [command.sequence for command in commands if type(command) is Apply]


def asks(commands) -> list[int]:
    return [command.start for command in commands if type(command) is Ask]


def at(expected: int, **more) -> Stream:
    stream = Stream(**more)
    for sequence in range(expected):
        assert applied(stream.live(frame(sequence))) == [sequence]
    return stream


def replay(stream: Stream, *frames: Frame) -> list[object]:
    commands = [command for one in frames for command in stream.replayed(one)]
    return commands + stream.replay_ended()


def test_in_sequence():
    assert at(4).state is State.IN_SEQUENCE


def test_a_first_sequence_above_0_is_a_gap():
    stream = Stream()
    assert asks(stream.live(frame(5))) == [0]
    assert (stream.state, stream.counters.gaps) == (State.REPLAYING, 1)
    assert applied(replay(stream, *map(frame, range(6)))) == [0, 1, 2, 3, 4, 5]
    assert stream.state is State.IN_SEQUENCE


def test_live_batches_wait_until_the_hole_is_filled():
    stream = at(3)
    assert asks(stream.live(frame(4))) == [2]
    assert stream.live(frame(5)) == []
    assert applied(replay(stream, frame(2), frame(3), frame(4))) == [3, 4, 5]
    assert (stream.state, stream.expected) == (State.IN_SEQUENCE, 6)


def test_an_overtaken_batch_fills_the_hole_itself():
    stream = at(3)
    stream.live(frame(4))
    commands = stream.live(frame(3))
    assert applied(commands) == [3, 4]
    assert (STOP in commands, stream.state) == (True, State.IN_SEQUENCE)
    assert stream.replayed(frame(3)) == [] == stream.replay_ended()


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_a_duplicate_is_ignored(sequence):
    stream = at(3)
    assert stream.live(frame(sequence)) == []
    assert stream.counters.duplicates == 1


def test_a_duplicate_of_a_batch_that_waits_is_ignored():
    stream = at(3)
    stream.live(frame(5))
    assert stream.live(frame(5)) == []
    assert stream.counters.duplicates == 1


@pytest.mark.parametrize("sequence", [0, 1, 2])
def test_another_payload_for_a_sequence_is_a_restart_and_clears(sequence):
    stream = at(3)
    commands = stream.live(frame(sequence, life=1))
    assert commands[0] is CLEAR
    assert stream.epoch == 1
    if sequence == 0:
        assert applied(commands) == [0]
        assert stream.state is State.IN_SEQUENCE
    else:
        assert asks(commands) == [0]
        assert applied(replay(stream, *(frame(at, 1) for at in range(3)))) == [0, 1, 2]


def test_a_restart_is_seen_while_replaying_too():
    stream = at(3)
    stream.live(frame(7))
    assert CLEAR in stream.live(frame(7, life=1))


def test_a_restart_that_reached_its_former_sequence_is_seen_by_the_batch_before_the_hole():
    stream = at(3)
    stream.live(frame(4, life=1))
    commands = stream.replayed(frame(2, life=1))
    assert CLEAR in commands
    assert asks(commands) == [0]
    assert applied(replay(stream, *(frame(at, 1) for at in range(5)))) == [0, 1, 2, 3, 4]
    assert stream.state is State.IN_SEQUENCE


def test_a_reconnect_asks_and_an_engine_that_has_less_has_restarted():
    stream = at(3)
    assert asks(stream.happened(Input.RECONNECTED)) == [2]
    assert CLEAR in stream.replay_ended()
    assert (stream.state, stream.expected, stream.epoch) == (State.IN_SEQUENCE, 0, 1)


def test_while_the_epoch_is_in_question_no_live_batch_closes_it():
    stream = at(3)
    stream.happened(Input.RECONNECTED)
    assert applied(stream.live(frame(3, life=1))) == []
    assert CLEAR in stream.replayed(frame(2, life=1))


def test_a_reconnect_to_the_same_epoch_costs_nothing():
    stream = at(3)
    stream.happened(Input.RECONNECTED)
    assert [c for c in replay(stream, frame(2), frame(3)) if type(c) is not Apply] == []
    assert (stream.state, stream.counters.gaps, stream.expected) == (State.IN_SEQUENCE, 0, 4)


def test_what_the_engine_no_longer_has_degrades_for_good():
    stream = at(3)
    stream.live(frame(9))
    commands = replay(stream, frame(6), frame(7), frame(8), frame(9))
    assert commands[0] is DEGRADE
    assert applied(commands) == [6, 7, 8, 9]
    assert (stream.state, stream.wants_replay, stream.counters.lost) == (State.STALE, False, 1)
    assert applied(stream.live(frame(10))) == [10]
    assert stream.state is State.STALE


def test_a_clear_closes_every_hole_before_it():
    for prepare in ([frame(9)], []):
        stream = at(3)
        for one in prepare:
            stream.live(one)
        commands = stream.live(frame(20, batch=Batch([Cleared()])))
        assert applied(commands) == [20]
        assert (stream.state, stream.expected) == (State.IN_SEQUENCE, 21)


def test_a_clear_heals_what_was_lost():
    stream = at(3)
    stream.live(frame(9))
    replay(stream, frame(6), frame(7), frame(8), frame(9))
    assert HEAL in stream.live(frame(10, batch=Batch([Cleared()])))
    assert stream.state is State.IN_SEQUENCE


def test_without_an_answer_it_is_asked_again_then_degraded_then_healed_by_a_late_one():
    stream = at(3)
    stream.live(frame(5))
    for _ in range(2):
        assert STOP in stream.replay_failed()
        assert stream.state is State.GAP
        assert asks(stream.happened(Input.DUE)) == [2]
    commands = stream.replay_failed()
    assert commands == [STOP, DEGRADE, Apply(5, EMPTY)]
    assert stream.state is State.STALE
    assert applied(stream.live(frame(6))) == [6]
    assert stream.wants_replay
    assert asks(stream.happened(Input.DUE)) == [2]
    commands = replay(stream, *map(frame, range(2, 8)))
    assert applied(commands) == [3, 4, 5, 6, 7]
    assert commands[-1] is HEAL
    assert (stream.state, stream.expected) == (State.IN_SEQUENCE, 8)


def test_a_second_try_of_a_stale_source_that_fails_goes_on_where_it_was():
    stream = at(3)
    stream.live(frame(5))
    stream.replay_failed(final=True)
    stream.happened(Input.DUE)
    stream.replayed(frame(2))
    assert applied(stream.live(frame(6))) == []
    commands = stream.replay_failed()
    assert applied(commands) == [6]
    assert (stream.state, stream.expected) == (State.STALE, 7)


def test_a_batch_that_cannot_be_read_is_a_hole_that_no_replay_fills():
    stream = at(3)
    assert asks(stream.live(frame(3, batch=None))) == [2]
    commands = replay(stream, frame(2), frame(3, batch=None), frame(4))
    assert DEGRADE in commands
    assert applied(commands) == [4]
    assert stream.state is State.STALE


def test_an_unreadable_batch_that_is_readable_in_the_replay_is_no_loss():
    stream = at(3)
    stream.live(frame(3, batch=None))
    readable = frame(3)
    assert applied(replay(stream, frame(2), readable)) == [3]
    assert stream.state is State.IN_SEQUENCE


def test_the_buffer_is_bounded_by_number_and_bytes():
    for limits in (Limits(buffered_max=3), Limits(buffered_bytes_max=30)):
        stream = at(2, limits=limits)
        for sequence in (3, 4, 5):
            stream.live(frame(sequence))
        commands = stream.live(frame(6))
        assert commands == [STOP, DEGRADE, *(Apply(at, EMPTY) for at in (3, 4, 5, 6))]
        assert (stream.state, stream.counters.overflows) == (State.STALE, 1)


def test_what_waited_before_a_replay_that_lacks_it_is_of_no_epoch():
    stream = Stream()
    stream.live(frame(90))
    assert applied(replay(stream, *(frame(at, 1) for at in range(3)))) == [0, 1, 2]
    assert (stream.counters.strays, stream.expected, stream.state) == (1, 3, State.IN_SEQUENCE)


def test_an_unknown_parent_asks_far_back_and_is_lost_in_the_same_epoch():
    stream = at(5)
    assert asks(stream.orphan(4)) == [0]
    stream.replayed(frame(3))
    assert applied(stream.replayed(frame(4))) == [4]
    stream.orphan(4)
    assert DEGRADE in stream.replay_ended()
    assert (stream.state, stream.counters.gaps) == (State.STALE, 1)


def test_an_unknown_parent_of_a_hidden_restart_is_found_out():
    stream = at(5)
    stream.orphan(4)
    commands = stream.replayed(frame(0, life=1))
    assert CLEAR in commands
    assert asks(commands) == [0]


def test_silence_degrades_and_the_next_in_sequence_heals():
    stream = at(3)
    assert stream.happened(Input.SILENT) == [DEGRADE]
    assert stream.state is State.STALE
    commands = stream.live(frame(3))
    assert applied(commands) == [3]
    assert commands[-1] is HEAL


def test_counters_that_went_back_clear_and_ask():
    stream = at(3)
    commands = stream.happened(Input.RESTARTED)
    assert CLEAR in commands
    assert asks(commands) == [0]


def test_it_goes_on_from_a_position():
    kept = at(5).position()
    stream = Stream(position=kept)
    assert asks(stream.happened(Input.RECONNECTED)) == [4]
    assert applied(replay(stream, frame(4), frame(5))) == [5]
    other = Stream(position=kept)
    other.happened(Input.RECONNECTED)
    assert CLEAR in other.replayed(frame(4, life=1))


def test_a_position_taken_in_a_gap_is_before_the_hole():
    stream = at(3)
    stream.live(frame(5))
    stream.replay_failed(final=True)
    assert stream.position().expected == 3


def test_whatever_happens_nothing_breaks_and_a_silent_end_is_whole():
    """Any inputs in any order; afterwards an engine that answers brings every stream back."""
    for seed in range(300):
        rng = random.Random(seed)
        stream = Stream(Limits(buffered_max=4, digests_max=8))
        for _ in range(60):
            which = rng.randrange(9)
            sequence = max(0, stream.expected + rng.randint(-3, 4))
            batch = rng.choice((EMPTY, EMPTY, EMPTY, None, Batch([Cleared()])))
            one = frame(sequence, rng.randrange(2), batch)
            if which < 4:
                stream.live(one)
            elif which < 6:
                stream.replayed(one)
            elif which == 6:
                rng.choice((stream.replay_ended, stream.replay_failed))()
            elif which == 7:
                stream.happened(rng.choice((Input.DUE, Input.RECONNECTED, Input.SILENT, Input.RESTARTED)))
            elif stream.expected:
                stream.orphan(stream.expected - 1)
            assert len(stream._buffer) <= 4
            assert len(stream._seen) <= 9
        stream.happened(Input.RESTARTED)
        replay(stream, *(frame(at, 7) for at in range(5)))
        assert (stream.state, stream.expected, stream.degraded) == (State.IN_SEQUENCE, 5, False)


def test_an_answer_that_lacks_its_middle_is_asked_for_again_from_there():
    stream = Stream()
    stream.live(frame(9))
    assert applied([*stream.replayed(frame(0)), *stream.replayed(frame(1))]) == [0, 1]
    assert stream.replayed(frame(5)) == [STOP]
    assert (stream.state, stream.lost) == (State.GAP, False)
    assert asks(stream.happened(Input.DUE)) == [1]
    assert applied(replay(stream, *map(frame, range(1, 10)))) == list(range(2, 10))
    assert (stream.state, stream.counters.lost) == (State.IN_SEQUENCE, 0)


def test_an_answer_that_breaks_off_counts_as_no_try_while_it_brings_something():
    stream = Stream()
    stream.live(frame(9))
    for sequence in range(6):
        stream.replayed(frame(sequence))
        stream.replay_failed()
        assert stream.state is State.GAP
        stream.happened(Input.DUE)
    for _ in range(3):
        stream.replay_failed()
        stream.happened(Input.DUE)
    assert stream.counters.degraded == 1
