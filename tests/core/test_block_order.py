"""Where an assistant's blocks stand, when they do not stand as usual."""

from __future__ import annotations

import pytest

from terraflow.core.block_order import in_order, order_of, texts_of

TURN = [("thinking", 0), ("tool_use", 0), ("text", 3), ("thinking", 0), ("text", 0), ("text", 2)]
ORDER = [
    {"type": "thinking"},
    {"type": "tool_use"},
    {"type": "text", "characters": 3},
    {"type": "thinking"},
    {"type": "text", "characters": 2},
]


def test_an_order_is_told_where_it_is_not_the_usual_one() -> None:
    assert order_of(TURN) == ORDER
    assert order_of([("thinking", 0), ("thinking", 0), ("text", 3), ("text", 2), ("tool_use", 0)]) is None
    assert order_of([]) is None


def test_it_is_made_again() -> None:
    assert texts_of(ORDER, "abcde") == ["abc", "de"]
    assert in_order(ORDER, ["t1", "t2"], ["x1", "x2"], ["c"]) == ["t1", "c", "x1", "t2", "x2"]


@pytest.mark.parametrize("blocks", [(["t"], ["x", "y"], ["c"]), (["t", "u"], ["x"], ["c", "d"]), ([], [], [])])
def test_one_that_does_not_fit_is_the_usual_one(blocks: tuple[list[str], list[str], list[str]]) -> None:
    assert in_order(ORDER, *blocks) == [*blocks[0], *blocks[1], *blocks[2]]
    assert in_order(None, *blocks) == [*blocks[0], *blocks[1], *blocks[2]]


@pytest.mark.parametrize("content", ["abcd", "abcdef", ""])
def test_a_text_of_another_length_stays_whole(content: str) -> None:
    assert texts_of(ORDER, content) == ([content] if content else [])
    assert texts_of(None, content) == ([content] if content else [])
