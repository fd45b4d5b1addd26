"""Which index each piece of a stream's tool calls gets."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.providers.tool_calls import CallIndices, renew


def indices(*pieces: tuple[int, str | None], choice: int = 0) -> list[int]:
    said: list[dict[str, Any]] = [
        {"index": index} | ({} if named is None else {"id": named}) for index, named in pieces
    ]
    CallIndices().settle(choice, said)
    return [piece["index"] for piece in said]


@pytest.mark.parametrize(
    ("pieces", "given"),
    [
        ([(0, "a"), (0, None), (1, "b"), (1, None), (0, None)], [0, 0, 1, 1, 0]),
        ([(0, "a"), (0, None), (0, "b"), (0, None), (0, "c")], [0, 0, 1, 1, 2]),
        ([(0, "a"), (0, "a"), (0, "")], [0, 0, 0]),
        ([(0, None), (0, "a"), (0, "b")], [0, 0, 1]),
        ([(1, "a"), (2, "b"), (1, None)], [1, 2, 1]),
        ([(0, "a"), (0, "b"), (1, "c"), (0, None), (1, None)], [0, 1, 2, 1, 2]),
        ([(0, "a"), (0, "b"), (0, "a"), (0, None), (0, "b"), (0, "c")], [0, 1, 0, 0, 1, 2]),
    ],
    ids=["as said", "one index", "the same id", "a late id", "from one", "taken", "ids that come again"],
)
def test_each_call_has_an_index(pieces: list[tuple[int, str | None]], given: list[int]) -> None:
    assert indices(*pieces) == given


def test_each_choice_has_its_own_calls() -> None:
    calls = CallIndices()
    said: list[list[dict[str, Any]]] = [[{"index": 0, "id": named}] for named in ("a", "b", "c")]
    for choice, pieces in zip((0, 1, 0), said, strict=True):
        calls.settle(choice, pieces)
    assert [pieces[0]["index"] for pieces in said] == [0, 0, 1]


def _told(*pieces: dict[str, Any]) -> list[dict[str, Any]]:
    told = [{"index": 0} | piece for piece in pieces]
    CallIndices().settle(0, told)
    return told


def test_an_id_and_a_name_are_told_once() -> None:
    """A client that joins what comes would make another id and another name of them."""
    told = _told(
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}},
        {"id": "a", "function": {"name": "f", "arguments": "}"}},
        {"id": "a", "function": {"name": "", "arguments": ""}},
    )
    assert told == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
        {"index": 0, "function": {"arguments": ""}},
    ]


def test_a_name_may_come_late() -> None:
    told = _told(
        {"id": "a", "function": {"name": "", "arguments": ""}}, {"function": {"name": "f"}}, {"function": None}
    )
    assert [piece.get("function") for piece in told] == [{"name": "", "arguments": ""}, {"name": "f"}, None]
    assert "function" not in told[2]


def test_a_call_without_an_id_is_given_one_of_its_own() -> None:
    first, again, late = _told({"function": {"name": "f"}}, {"function": {"arguments": "{}"}}, {"id": "late"})
    (other,) = _told({"id": None, "function": {"name": "f"}})
    assert first["id"].startswith("call_")
    assert len({first["id"], other["id"]}) == 2
    assert len(first["id"]) <= 40, "OpenAI takes no longer ones back"
    assert "id" not in again
    assert "id" not in late


def test_a_call_in_the_old_form_is_told_where_there_is_none_in_the_new() -> None:
    old, new = {"name": "f", "arguments": "{}"}, [{"index": 0, "id": "a"}]
    alone: dict[str, Any] = {"function_call": old}
    both: dict[str, Any] = {"function_call": old, "tool_calls": new}
    renew(alone, index=0)
    renew(both, index=0)
    assert alone == {"tool_calls": [{"index": 0, "type": "function", "function": old}]}
    assert both == {"tool_calls": new}
