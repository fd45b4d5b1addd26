"""Answers of the Messages API: golden pairs after the reference, order of events, and hostile servers."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec
import pytest

from terraflow.contracts.capability import ProviderKind
from terraflow.ports.upstream import Chunk, Failure, ProviderFailure, Usage
from tests.providers.facing import facing_vendor
from tests.providers.sample import call, collect, finishes, text_of, tool_calls_of
from tests.providers.vendor import forever, says, streams

facing = partial(facing_vendor, ProviderKind.ANTHROPIC)


def message(*content: dict[str, Any], stop: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": list(content),
        "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 4, **usage},
    }  # fmt: skip


def ev(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


START = ev("message_start", message=message(stop=None, cache_read_input_tokens=3, cache_creation_input_tokens=2))
STOP = ev("message_stop")


def opened(index: int, **block: Any) -> bytes:
    return ev("content_block_start", index=index, content_block=block)


def delta(index: int, **fields: Any) -> bytes:
    return ev("content_block_delta", index=index, delta=fields)


def closed(index: int) -> bytes:
    return ev("content_block_stop", index=index)


def ended(reason: str | None = "end_turn", **usage: Any) -> bytes:
    return ev(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 15, **usage}
    )


HI = [opened(0, type="text", text=""), delta(0, type="text_delta", text="hi"), closed(0)]


async def streamed(*events: bytes) -> list[Chunk]:
    async with facing(streams(*events)) as (provider, _):
        return await collect(provider, call(stream=True))


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_where_and_with_what_it_asks(path: str):
    async with facing(says(200, message({"type": "text", "text": "hi"})), path=path) as (provider, vendor):
        await provider.complete(call())
    request = vendor.requests[0]
    assert request.line == "POST /v1/messages HTTP/1.1"
    assert (request.header("x-api-key"), request.header("anthropic-version")) == ("sk-secret", "2023-06-01")
    assert request.header("authorization") is None


async def test_a_whole_answer_with_everything_in_it():
    answer = message(
        {"type": "thinking", "thinking": "hm", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "text", "text": "One. "},
        {"type": "text", "text": "Two."},
        {"type": "tool_use", "id": "t1", "name": "a", "input": {"x": "é"}},
        {"type": "tool_use", "id": "t2", "name": "b", "input": {}},
        stop="tool_use",
        cache_read_input_tokens=3,
        cache_creation_input_tokens=2,
        output_tokens_details={"thinking_tokens": 1},
        service_tier="priority",
    )
    async with facing(says(200, answer)) as (provider, _):
        found = await provider.complete(call())
    assert found.choices == [
        {
            "index": 0,
            "logprobs": None,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "One. Two.",
                "refusal": None,
                "reasoning_content": "hm",
                "thinking_blocks": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig=="},
                    {"type": "redacted_thinking", "data": "zz"},
                ],
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "a", "arguments": '{"x":"é"}'}},
                    {"id": "t2", "type": "function", "function": {"name": "b", "arguments": "{}"}},
                ],
            },
        }
    ]
    assert found.usage == Usage(input=9, cached_input=3, cache_write=2, output=3, reasoning=1)
    assert found.extras == {"service_tier": "priority"}


@pytest.mark.parametrize(
    ("stop", "finish"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("tool_use", "tool_calls"),
     ("refusal", "content_filter"), ("model_context_window_exceeded", "length")],
)  # fmt: skip
async def test_every_finish(stop: str, finish: str):
    async with facing(says(200, message(stop=stop)), streams(START, ended(stop), STOP)) as (provider, _):
        assert (await provider.complete(call())).choices[0]["finish_reason"] == finish
        assert finishes(await collect(provider, call(stream=True))) == [finish]


async def test_the_stop_sequence_that_was_met_stands_beside_the_answer():
    whole = {**message(stop="stop_sequence"), "stop_sequence": "END"}
    last = ev(
        "message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "END"}, usage={"output_tokens": 1}
    )
    async with facing(says(200, whole), streams(START, last, STOP)) as (provider, _):
        assert (await provider.complete(call())).stop_sequence == "END"
        assert [c.stop_sequence for c in await collect(provider, call(stream=True))] == [None, "END"]


async def test_mixed_blocks_keep_their_indexes_and_their_first_deltas():
    chunks = await streamed(
        START, ev("ping"), opened(0, type="text", text="First, "), delta(0, type="text_delta", text="hello."),
        opened(1, type="tool_use", id="t1", name="a", input={}),
        opened(2, type="tool_use", id="t2", name="b", input={}),
        delta(2, type="input_json_delta", partial_json='{"y":'), delta(1, type="input_json_delta", partial_json='{"x"'),
        delta(2, type="input_json_delta", partial_json="2}"), delta(1, type="input_json_delta", partial_json=":1}"),
        closed(2), closed(1), closed(0), opened(3, type="tool_use", id="t3", name="c", input={"z": 3}), closed(3),
        opened(4, type="tool_use", id="t4", name="d", input={}), closed(4), ended("tool_use"), STOP,
    )  # fmt: skip
    assert text_of(chunks) == "First, hello."
    assert tool_calls_of(chunks) == {
        0: {"id": "t1", "name": "a", "arguments": '{"x":1}'},
        1: {"id": "t2", "name": "b", "arguments": '{"y":2}'},
        2: {"id": "t3", "name": "c", "arguments": '{"z":3}'},
        3: {"id": "t4", "name": "d", "arguments": "{}"},
    }


async def test_thinking_is_readable_at_once_and_signed_at_its_end():
    chunks = await streamed(
        START, opened(0, type="thinking", thinking="", signature=""), delta(0, type="thinking_delta", thinking="h"),
        delta(0, type="thinking_delta", thinking="m"), delta(0, type="signature_delta", signature="si"),
        delta(0, type="signature_delta", signature="g"), closed(0), opened(1, type="redacted_thinking", data="zz"),
        closed(1), opened(2, type="text", text=""), delta(2, type="text_delta", text="hi"), closed(2), ended(), STOP,
    )  # fmt: skip
    deltas = [c["delta"] for chunk in chunks for c in chunk.choices]
    assert [d["reasoning_content"] for d in deltas if "reasoning_content" in d] == ["h", "m"]
    assert [b for d in deltas for b in d.get("thinking_blocks", ())] == [
        {"index": 0, "type": "thinking", "thinking": "hm", "signature": "sig"},
        {"index": 1, "type": "redacted_thinking", "data": "zz"},
    ]


CITED = {
    "type": "char_location", "cited_text": "a", "document_index": 0, "document_title": None, "start_char_index": 0,
    "end_char_index": 1,
}  # fmt: skip
SOURCE = {"type": "text", "media_type": "text/plain", "data": "a"}
ASKS = [{"role": "user", "content": [{"type": "document", "source": SOURCE, "citations": {"enabled": True}}]}]


async def test_citations_come_in_the_blocks_that_they_belong_to():
    asked = call(stream=True, messages=ASKS)
    asked = msgspec.structs.replace(asked, request=msgspec.structs.replace(asked.request, extended=True))
    events = [
        START,
        *[opened(0, type="text", text=""), delta(0, type="text_delta", text="So: "), closed(0)],
        *[opened(1, type="text", text="", citations=[]), delta(1, type="citations_delta", citation=CITED)],
        *[delta(1, type="text_delta", text="a."), closed(1)],
        *[ended(), STOP],
    ]
    blocks = [
        {"type": "text", "text": "So: ", "citations": []},
        {"type": "text", "text": "a.", "citations": [CITED]},
    ]
    whole = message({"type": "text", "text": "So: ", "citations": None}, blocks[1])
    async with facing(says(200, whole), streams(*events)) as (provider, _):
        said = (await provider.complete(asked)).choices[0]["message"]
        assert (said["content"], said["text_blocks"]) == ("So: a.", blocks)
        chunks = await collect(provider, asked)
    assert text_of(chunks) == "So: a."
    deltas = [choice["delta"].get("text_blocks", ()) for chunk in chunks for choice in chunk.choices]
    assert [block for told in deltas for block in told] == [{"index": n, **block} for n, block in enumerate(blocks)]


async def test_usage_is_told_once_with_the_finish_and_cumulative_counts_win():
    chunks = await streamed(START, *HI, ended(cache_read_input_tokens=5), STOP)
    told = [(bool(c.choices[0]["finish_reason"]), c.usage) for c in chunks if c.usage]
    assert told == [(True, Usage(input=9, cached_input=5, cache_write=2, output=15))]


@pytest.mark.parametrize("unsaid", ["input_tokens", "output_tokens"])
async def test_a_stream_that_does_not_count_both_sides_has_no_usage(unsaid):
    begun = {"input_tokens": 9, "output_tokens": 1, unsaid: None}
    start = ev("message_start", message={**message(), "content": [], "stop_reason": None, "usage": begun})
    chunks = await streamed(start, *HI, ended(output_tokens=None), STOP)
    assert text_of(chunks) == "hi"
    assert [chunk.usage for chunk in chunks if chunk.usage] == []


async def test_events_of_tomorrow_are_skipped():
    chunks = await streamed(START, ev("brand_new", what={"a": 1}), *HI, ended(), STOP)
    assert text_of(chunks) == "hi"


async def test_a_cache_mark_with_a_price_of_its_own_is_refused():
    marked = [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]
    async with facing(says(200, message({"type": "text", "text": "hi"}))) as (provider, _vendor):
        assert await provider.complete(call(messages=marked))
        marked[0]["content"][0]["cache_control"]["ttl"] = "1h"
        with pytest.raises(ProviderFailure) as caught:
            await provider.complete(call(messages=marked))
        assert (caught.value.failure, caught.value.fields) == (Failure.UNSUPPORTED_FIELD, ("cache_control",))


async def test_a_refused_field_is_never_sent():
    async with facing(says(200, message())) as (provider, vendor):
        for stream in (False, True):
            with pytest.raises(ProviderFailure) as caught:
                await (collect(provider, call(stream=True, seed=1)) if stream else provider.complete(call(seed=1)))
            assert (caught.value.failure, caught.value.fields) == (Failure.UNSUPPORTED_FIELD, ("seed",))
    assert vendor.requests == []


DEEP = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
HOSTILE: dict[str, tuple[list[bytes], Failure]] = {
    "no end": ([START, *HI, ended()], Failure.CUT_OFF),
    "no finish": ([START, *HI, STOP], Failure.CUT_OFF),
    "nothing": ([], Failure.CUT_OFF),
    "overloaded midway": ([START, ev("error", error={"type": "overloaded_error", "message": "x"})], Failure.OVERLOADED),
    "broken midway": ([START, ev("error", error={"type": "api_error", "message": "x"})], Failure.SERVER_ERROR),
    "rate midway": ([ev("error", error={"type": "rate_limit_error"})], Failure.RATE_LIMITED),
    "an unknown error": ([START, ev("error", error={"type": "novel_error"})], Failure.MALFORMED),
    "a delta first": ([delta(0, type="text_delta", text="x")], Failure.MALFORMED),
    "two starts": ([START, START], Failure.MALFORMED),
    "a delta of no block": ([START, delta(7, type="text_delta", text="x")], Failure.MALFORMED),
    "a block twice": ([START, HI[0], HI[0]], Failure.MALFORMED),
    "text for a tool": (
        [START, opened(0, type="tool_use", id="a", name="b", input={}), delta(0, type="text_delta", text="x")],
        Failure.MALFORMED,
    ),
    "a finish with open blocks": ([START, HI[0], ended()], Failure.MALFORMED),
    "two finishes": ([START, ended(), ended()], Failure.MALFORMED),
    "an unknown finish": ([START, ended("pause_turn")], Failure.MALFORMED),
    "an unknown block": ([START, opened(0, type="server_tool_use", id="x", name="web", input={})], Failure.MALFORMED),
    "an unknown delta": ([START, HI[0], delta(0, type="citations_delta", citation={})], Failure.MALFORMED),
    "input that is no object": ([START, opened(0, type="tool_use", id="a", name="b", input=[1])], Failure.MALFORMED),
    "not JSON": ([START, b"data: {oops\n\n"], Failure.MALFORMED),
    "a type that is no text": ([START, b'data: {"type": 7}\n\n'], Failure.MALFORMED),
    "invalid UTF-8": ([START, HI[0], delta(0, type="text_delta", text="?").replace(b"?", b"\xff")], Failure.MALFORMED),
    "deep input": (
        [START, opened(0, type="tool_use", id="a", name="b", input={}).replace(b"{}", DEEP)],
        Failure.MALFORMED,
    ),
    "a negative count": ([START, ended(output_tokens=-1)], Failure.MALFORMED),
}  # fmt: skip


@pytest.mark.parametrize("said", [7, {"type": "another", "category": 1}, {"type": "refusal", "category": ["x"]}])
async def test_details_of_a_stop_in_another_shape_are_left_out(said: Any):
    whole = message({"type": "text", "text": "hi"}) | {"stop_details": said}
    last = ev("message_delta", delta={"stop_reason": "end_turn", "stop_details": said}, usage={"output_tokens": 1})
    async with facing(says(200, whole), streams(START, *HI, last, STOP)) as (provider, _):
        answer = await provider.complete(call())
        chunks = await collect(provider, call(stream=True))
    assert answer.beside.stop_details is None
    assert text_of(chunks) == "hi"
    assert all(chunk.beside is None or chunk.beside.stop_details is None for chunk in chunks)


async def test_a_200_that_holds_an_error_is_classed_by_it_where_a_stream_was_asked_for():
    async with facing(says(200, {"type": "error", "error": {"type": "overloaded_error"}})) as (provider, _):
        with pytest.raises(ProviderFailure) as caught:
            await collect(provider, call(stream=True))
    assert (caught.value.failure, caught.value.reached) == (Failure.OVERLOADED, True)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_stream(name: str):
    events, expected = HOSTILE[name]
    async with facing(streams(*events)) as (provider, vendor):
        with pytest.raises(ProviderFailure) as caught:
            await collect(provider, call(stream=True))
        await vendor.settled()
    assert caught.value.failure is expected
    assert caught.value.reached
    assert caught.value.__context__ is None


async def test_endless_pings_are_ended():
    async with facing(forever(ev("ping") * 5_000)) as (provider, vendor):
        with pytest.raises(ProviderFailure) as caught:
            await collect(provider, call(stream=True, timeout_s=20.0))
        assert vendor.replying
        await vendor.closing()
    assert caught.value.failure is Failure.MALFORMED


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<html>", Failure.MALFORMED),
        ({"type": "message"}, Failure.MALFORMED),
        (message(stop=None), Failure.MALFORMED),
        (message({"type": "novel"}), Failure.MALFORMED),
        (message({"type": "text", "text": 7}), Failure.MALFORMED),
        ({**message(), "usage": {}}, Failure.MALFORMED),
        ({"type": "error", "error": {"type": "overloaded_error"}}, Failure.OVERLOADED),
        ({"type": "error", "error": {"type": "novel"}}, Failure.MALFORMED),
    ],
    ids=str,
)
async def test_a_hostile_answer(body: Any, expected: Failure):
    async with facing(says(200, body)) as (provider, _):
        with pytest.raises(ProviderFailure) as caught:
            await provider.complete(call())
    assert (caught.value.failure, caught.value.reached) == (expected, True)
