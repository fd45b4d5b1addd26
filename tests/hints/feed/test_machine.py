"""The table is whole, and the page that shows it is the table."""

from pathlib import Path

import pytest

from terraflow.hints.feed import mapping, stream
from terraflow.hints.feed.feed import FeedCounters
from terraflow.hints.feed.machine import TABLE, Do, Input, State
from terraflow.hints.feed.settings import FeedSettings

PAGE = Path(__file__).parents[3] / "docs/hints/feeds.md"


def test_every_state_knows_every_input():
    assert set(TABLE) == {(state, happened) for state in State for happened in Input}


def test_every_state_is_reached_and_left():
    left = {(state, row.then) for (state, _), row in TABLE.items() if row.then is not state}
    for state in State:
        assert any(before is state for before, _ in left)
        assert any(then is state for _, then in left) or state is State.IN_SEQUENCE


@pytest.mark.parametrize("state", State)
def test_another_epoch_and_a_clear_end_every_doubt(state):
    assert Do.RESTART in TABLE[state, Input.BACKWARD].do
    assert Do.RESTART in TABLE[state, Input.RESTARTED].do
    assert TABLE[state, Input.CLEARED].then is State.IN_SEQUENCE


@pytest.mark.parametrize(("state", "happened"), [key for key, row in TABLE.items() if Do.ASK in row.do])
def test_who_asks_replays_and_nobody_else_enters_replaying(state, happened):
    assert TABLE[state, happened].then is State.REPLAYING


def test_no_batch_is_applied_while_one_before_it_may_come():
    for state in (State.GAP, State.REPLAYING):
        for happened in (Input.NEXT, Input.AHEAD, Input.GARBLED):
            assert Do.APPLY not in TABLE[state, happened].do


def test_what_nobody_asked_for_changes_nothing():
    for state in (State.IN_SEQUENCE, State.GAP, State.STALE):
        for happened in Input:
            if happened.name.startswith(("REPLAYED", "ENDED")):
                assert TABLE[state, happened] == ((), state)


def diagram() -> str:
    """The table as a Mermaid state diagram; rows that stay where they are are left out."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, happened), row in TABLE.items():
        for then in (State.IN_SEQUENCE, State.STALE) if row.then is None else (row.then,):
            if then is not state:
                arrows.setdefault((state, then), []).append(happened.name.lower())
    lines = ["stateDiagram-v2", "    [*] --> in_sequence"]
    for (state, then), names in arrows.items():
        lines.append(f"    {state.name.lower()} --> {then.name.lower()}: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def test_the_page_shows_this_table():
    assert diagram() in PAGE.read_text("utf-8")


def test_the_page_names_every_setting_counter_and_input():
    page = PAGE.read_text("utf-8")
    names = {
        *FeedSettings.__struct_fields__,
        *FeedCounters.__struct_fields__,
        *mapping.Counters.__struct_fields__,
        *stream.Counters.__struct_fields__,
    }
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
    assert all(f"| {happened.name.lower()} | {happened.value} |" in page for happened in Input)
