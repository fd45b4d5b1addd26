"""Calls of tools in OpenAI's shape, as engines tell them: without ids, with long ones, and in the old form."""

from __future__ import annotations

import pytest

from terraflow.contracts.capability import Dialect
from tests.providers.openai_vendor import DONE, facing, piece, whole
from tests.providers.sample import call, collect, finishes, tool_calls_of
from tests.providers.vendor import Reply, says, streams


async def test_calls_that_a_vendor_gave_no_ids_have_some():
    called = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [called, called | {"id": ""}, called | {"id": "c"}]}
    async with facing(says(200, whole(message, "tool_calls"))) as (provider, _):
        answer = await provider.complete(call())
    ids = [made["id"] for made in answer.choices[0]["message"]["tool_calls"]]
    assert len(set(ids)) == 3
    assert ids[2] == "c"
    assert all(ids)


OLD = {"name": "f", "arguments": '{"a":1}'}
IN_THE_OLD_FORM: list[Reply] = [
    says(200, whole({"role": "assistant", "content": None, "function_call": OLD}, "function_call")),
    streams(
        piece({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
        *(piece({"function_call": {"arguments": part}}) for part in ('{"a"', ":1}")),
        piece({}, "function_call"),
        DONE,
    ),
]


async def test_a_call_in_the_old_form_is_one_of_a_tool_where_tools_were_asked_for():
    """In their form it has an id, which the next turn's result names; the old form has none."""
    ids = []
    for _ in range(2):
        async with facing(*IN_THE_OLD_FORM) as (provider, _):
            answer = await provider.complete(call())
            chunks = await collect(provider, call(stream=True))
        (choice,) = answer.choices
        assert "function_call" not in choice["message"]
        (made,), (flowed,) = choice["message"]["tool_calls"], tool_calls_of(chunks).values()
        assert (made["type"], made["function"]) == ("function", OLD)
        assert (flowed["name"], flowed["arguments"]) == (OLD["name"], OLD["arguments"])
        assert [choice["finish_reason"], *finishes(chunks)] == ["tool_calls", "tool_calls"]
        ids += [made["id"], flowed["id"]]
    assert len(set(ids)) == 4


async def test_a_call_in_the_old_form_stays_so_where_functions_were_asked_for():
    asked = {"functions": [{"name": "f"}]}
    async with facing(*IN_THE_OLD_FORM) as (provider, _):
        answer = await provider.complete(call(**asked))
        chunks = await collect(provider, call(stream=True, **asked))
    assert answer.choices[0]["message"]["function_call"] == OLD
    assert "".join(c.choices[0]["delta"]["function_call"]["arguments"] for c in chunks[:3]) == OLD["arguments"]
    assert [answer.choices[0]["finish_reason"], *finishes(chunks)] == ["function_call", "function_call"]


@pytest.mark.parametrize("dialect", [Dialect.CURRENT, Dialect.SELF_HOSTED])
async def test_a_calls_id_that_openai_finds_too_long_is_told_shorter(dialect: Dialect):
    said = [f"chatcmpl-tool-{n:032}" for n in range(2)] + ["call_a"]
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in said]
    results = [{"role": "tool", "tool_call_id": one, "content": "x"} for one in said]
    user = {"role": "user", "content": "hi"}
    async with facing(says(200, whole()), dialect=dialect) as (provider, vendor):
        await provider.complete(call(messages=[user, {"role": "assistant", "tool_calls": calls}, *results]))
    sent = vendor.requests[-1].body["messages"]
    ids = [called["id"] for called in sent[1]["tool_calls"]]
    assert ids == [result["tool_call_id"] for result in sent[2:]]
    assert sent[0] == user
    assert len(set(ids)) == 3
    assert ids[2] == "call_a"
    assert (ids == said) is (dialect is Dialect.SELF_HOSTED)
    assert dialect is Dialect.SELF_HOSTED or all(len(one) <= 40 for one in ids)
