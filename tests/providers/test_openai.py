"""The OpenAI-compatible adapter: what is sent, what is kept of what comes back, and hostile servers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from terraflow.contracts.capability import Dialect
from terraflow.ports.upstream import Failure, ProviderFailure, Usage
from tests.providers.openai_vendor import DONE, HELLO, WHOLE, event, facing, piece, whole
from tests.providers.sample import call, collect, finishes, text_of, tool_calls_of
from tests.providers.vendor import Reply, Vendor, forever, hangs_up, head, says, streams


async def test_what_is_sent_whole():
    async with facing(says(200, whole())) as (provider, vendor):
        await provider.complete(call(temperature=0.5, future_field={"a": 1}, output_tokens_max=77))
    request = vendor.requests[0]
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.body == {
        "model": "model-1",
        "messages": [{"role": "user", "content": "Say hello."}],
        "temperature": 0.5,
        "future_field": {"a": 1},
        "max_completion_tokens": 77,
    }
    assert sorted((name.lower(), value) for name, value in request.headers if name.lower() != "content-length") == [
        ("accept", "application/json"),
        ("accept-encoding", "identity"),
        ("authorization", "Bearer sk-secret"),
        ("content-type", "application/json"),
        ("host", f"127.0.0.1:{vendor.port}"),
        ("user-agent", "terraflow"),
    ]


async def test_what_is_sent_for_a_stream():
    async with facing(streams(WHOLE)) as (provider, vendor):
        await collect(provider, call(stream=True))
    body = vendor.requests[0].body
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert vendor.requests[0].header("accept") == "text/event-stream"


async def test_engines_get_max_tokens_and_the_readable_reasoning():
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "r", "thinking_blocks": [{"type": "thinking"}]},
        {"role": "user", "content": "c"},
    ]
    for dialect, limit, kept in (
        (Dialect.CURRENT, "max_completion_tokens", {"role", "content"}),
        (Dialect.SELF_HOSTED, "max_tokens", {"role", "content", "reasoning_content"}),
    ):
        async with facing(says(200, whole()), dialect=dialect) as (provider, vendor):
            await provider.complete(call(messages=history, output_tokens_max=9))
        body = vendor.requests[0].body
        assert {k: v for k, v in body.items() if "max" in k} == {limit: 9}
        assert set(body["messages"][1]) == kept
    assert "thinking_blocks" in history[1]


@pytest.mark.parametrize("calls", [[], None])
async def test_an_engines_answer_goes_on_with_openai_without_what_that_refuses(calls: Any):
    said = {"role": "assistant", "content": "b", "refusal": None, "annotations": []}
    beside = {"reasoning": "r", "reasoning_content": "r", "text_blocks": [], "tool_calls": calls}
    history = [{"role": "user", "content": "a"}, said | beside, {"role": "user", "content": "c"}]
    async with facing(says(200, whole())) as (provider, vendor):
        await provider.complete(call(messages=history))
    assert vendor.requests[0].body["messages"] == [history[0], said, history[2]]


async def test_what_clients_know_of_an_answer_is_kept_and_nothing_else():
    logprobs = {
        "content": [{"token": "hi", "logprob": -0.1, "bytes": [104], "top_logprobs": []}],
        "refusal": None,
    }
    message = {
        "role": "assistant", "content": "hi", "refusal": None, "vendor_secret": {"a": 1},
        "annotations": [{"type": "url_citation", "url_citation": {"start_index": 0, "url": "u"}}],
    }  # fmt: skip
    body = whole(message, system_fingerprint="fp", service_tier="flex", vendor="x")
    body["choices"][0].update(logprobs=logprobs, vendor_note="y")
    async with facing(says(200, body)) as (provider, _):
        answer = await provider.complete(call())
    choice = answer.choices[0]
    assert choice.keys() == {"index", "message", "finish_reason", "logprobs"}
    assert choice["logprobs"] == logprobs
    assert choice["message"].keys() == {"role", "content", "refusal", "annotations"}
    assert answer.extras == {"system_fingerprint": "fp", "service_tier": "flex"}


async def test_every_kind_of_token_is_counted_once():
    usage = {
        "prompt_tokens": 100, "completion_tokens": 60, "total_tokens": 160,
        "prompt_tokens_details": {"cached_tokens": 30, "audio_tokens": 20, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 25, "audio_tokens": 5, "rejected_prediction_tokens": 3},
    }  # fmt: skip
    async with facing(says(200, {**whole(), "usage": usage})) as (provider, _):
        found = (await provider.complete(call())).usage
    assert found == Usage(
        input=40, cached_input=30, cache_write=10, audio_input=20, output=30, reasoning=25, audio_output=5
    )
    assert (found.input_total, found.output_total) == (100, 60)


async def test_a_vendor_that_names_no_usage_is_counted_and_marked():
    body = whole()
    del body["usage"]
    asked = call()
    pictured = msgspec.structs.replace(asked.request, size_bytes=1_000_100, inline_bytes=1_000_000)
    with_picture = msgspec.structs.replace(asked, request=pictured)
    async with facing(says(200, body), says(200, body)) as (provider, _):
        answers = [await provider.complete(each) for each in (asked, with_picture)]
    assert all(answer.usage.estimated for answer in answers)
    assert [answer.usage.input for answer in answers] == [25, 25], "what is no text has bounds of its own"


async def test_an_answer_whose_tokens_are_not_counted_has_no_usage_of_the_vendors():
    half = {"prompt_tokens": 10, "total_tokens": 10}
    stream = [*HELLO, piece({}, "stop"), event([], usage=half), DONE]
    async with facing(says(200, whole(usage=half)), streams(*stream)) as (provider, _):
        answer = await provider.complete(call())
        chunks = await collect(provider, call(stream=True))
    assert answer.usage.estimated and answer.usage.output > 0
    assert [chunk.usage for chunk in chunks if chunk.usage] == []


@pytest.mark.parametrize(
    ("metadata", "moderation"), [(7, 7), ("x", []), ({"version": 1}, {"input": 1}), ({"a": {}}, {"input": {"type": 1}})]
)
async def test_what_stands_beside_an_answer_in_another_shape_is_left_out(metadata: Any, moderation: Any):
    """SGLang answers with metadata of its own."""
    beside = {"metadata": metadata, "moderation": moderation}
    stream = [event([{"index": 0, "delta": {"content": "x"}}], **beside), piece({}, "stop"), DONE]
    async with facing(says(200, whole() | beside), streams(*stream)) as (provider, _):
        answer = await provider.complete(call())
        chunks = await collect(provider, call(stream=True))
    assert answer.extras == {}
    assert [chunk.extras for chunk in chunks] == [{}, {}]


async def test_a_part_of_the_prompt_that_is_larger_than_the_prompt_is_no_count():
    body = whole()
    body["usage"] = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 11}}
    async with facing(says(200, body)) as (provider, _):
        with pytest.raises(ProviderFailure) as caught:
            await provider.complete(call())
    assert caught.value.failure is Failure.MALFORMED


async def test_several_choices_and_mixed_tool_calls_of_a_stream():
    def called(index: int, **function: str) -> dict[str, Any]:
        first = {"id": f"c{index}", "type": "function"} if "name" in function else {}
        return {"tool_calls": [{"index": index, **first, "function": function}]}

    stream = [
        piece(called(0, name="a", arguments="")), piece(called(1, name="b", arguments="{")),
        piece(called(0, arguments="{}")), piece(called(1, arguments="}")),
        piece({"content": "other"}, index=1), piece({}, "tool_calls"), piece({}, "stop", index=1),
        event([], usage={"prompt_tokens": 3, "completion_tokens": 4}), DONE,
    ]  # fmt: skip
    async with facing(streams(*stream)) as (provider, _):
        chunks = await collect(provider, call(stream=True, choices=2))
    assert {i: (c["name"], c["arguments"]) for i, c in tool_calls_of(chunks).items()} == {
        0: ("a", "{}"),
        1: ("b", "{}"),
    }
    assert finishes(chunks) == ["tool_calls", "stop"]
    assert chunks[-1].usage == Usage(input=3, output=4)


async def test_a_byte_at_a_time():
    async with facing(streams(*(WHOLE[i : i + 1] for i in range(len(WHOLE))))) as (provider, _):
        assert text_of(await collect(provider, call(stream=True))) == "hi"


async def test_an_end_mark_without_an_end_of_the_response_is_enough():
    async with facing(streams(WHOLE, 30.0)) as (provider, _):
        assert text_of(await collect(provider, call(stream=True))) == "hi"


@pytest.mark.parametrize("ending", [b"data: [DONE]", b"data: [DONE]\n", b"data:[DONE]\r\n", b"data: [DONE]\r"])
async def test_an_end_mark_without_a_blank_line_is_one_when_the_response_has_ended(ending: bytes):
    async with facing(streams(*HELLO, piece({}, "stop") + ending)) as (provider, vendor):
        for _ in range(2):
            assert text_of(await collect(provider, call(stream=True))) == "hi"
        assert vendor.connections == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_error_in_a_200_says_when_to_come_back(stream: bool):
    failed = await failure(says(200, {"error": {"message": "x", "code": 429}}, "Retry-After: 7"), stream)
    assert (failed.failure, failed.retry_after_s) == (Failure.RATE_LIMITED, 7)


async def test_a_response_that_ends_a_little_after_its_end_mark_keeps_its_connection():
    async with facing(streams(WHOLE, 0.05)) as (provider, vendor):
        for _ in range(3):
            await collect(provider, call(stream=True))
            await asyncio.sleep(0.1)
        assert vendor.connections == 1


async def test_a_response_that_never_ends_after_its_end_mark_loses_it():
    async with facing(streams(WHOLE, 30.0)) as (provider, vendor):
        await collect(provider, call(stream=True))
        assert vendor.replying
        await vendor.closing()


async def failure(reply: Reply, stream: bool, **fields: Any) -> ProviderFailure:
    """The failure of a call; a response that was still coming must have been cut off."""
    async with facing(reply) as (provider, vendor):
        with pytest.raises(ProviderFailure) as caught:
            if stream:
                await collect(provider, call(stream=True, **fields))
            else:
                await provider.complete(call(**fields))
        await vendor.settled()
    assert caught.value.__context__ is None
    return caught.value


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


HOSTILE_STREAMS: dict[str, tuple[Reply, Failure]] = {
    "no end mark": (streams(*HELLO, piece({}, "stop")), Failure.CUT_OFF),
    "no finish": (streams(*HELLO, DONE), Failure.CUT_OFF),
    "nothing at all": (streams(), Failure.CUT_OFF),
    "dropped": (streams(*HELLO, end=False), Failure.CUT_OFF),
    "dropped in an event": (streams(*HELLO, b'data: {"choi', end=False), Failure.CUT_OFF),
    "ended in an event": (streams(*HELLO, b'data: {"choices": []}'), Failure.CUT_OFF),
    "ended in an end mark": (streams(*HELLO, piece({}, "stop"), b"data: [DON"), Failure.CUT_OFF),
    "an unknown finish": (streams(*HELLO, piece({}, "abort"), DONE), Failure.CUT_OFF),
    "an error": (streams(*HELLO, _event(b'{"error": {"message": "x", "type": "server_error"}}')), Failure.SERVER_ERROR),
    "an error of rate": (streams(_event(b'{"error": {"message": "x", "code": 429}}')), Failure.RATE_LIMITED),
    "an error nobody knows": (streams(*HELLO, _event(b'{"error": "boom"}')), Failure.MALFORMED),
    "a 200 that holds an error": (says(200, {"error": {"message": "x", "code": 429}}), Failure.RATE_LIMITED),
    "a 200 that holds an answer": (says(200, whole()), Failure.MALFORMED),
    "a 200 that holds too much": (says(200, b"[" + b" " * 100_000 + b"]"), Failure.MALFORMED),
    "an error beside choices": (streams(_event(b'{"choices": [], "error": {"code": 503}}')), Failure.OVERLOADED),
    "not JSON": (streams(*HELLO, _event(b"{oops")), Failure.MALFORMED),
    "not an object": (streams(_event(b"[1, 2]")), Failure.MALFORMED),
    "no choices": (streams(_event(b'{"id": "x"}')), Failure.MALFORMED),
    "wrong types": (streams(_event(b'{"choices": [{"index": 0, "delta": {"content": 7}}]}')), Failure.MALFORMED),
    "a wrong index": (streams(_event(b'{"choices": [{"index": -1, "delta": {}}]}')), Failure.MALFORMED),
    "a choice too many": (streams(piece({"content": "x"}, index=1)), Failure.MALFORMED),
    "text after the end": (streams(piece({}, "stop"), piece({"content": "x"})), Failure.MALFORMED),
    "a tool call without index": (
        streams(piece({"tool_calls": [{"id": "a", "function": {"name": "f"}}]})), Failure.MALFORMED,
    ),
    "NaN": (streams(_event(b'{"choices": [], "usage": {"prompt_tokens": NaN}}')), Failure.MALFORMED),
    "a negative count": (streams(_event(b'{"choices": [], "usage": {"prompt_tokens": -1}}')), Failure.MALFORMED),
    "invalid UTF-8": (streams(_event(b'{"choices": [{"index": 0, "delta": {"content": "\xff"}}]}')), Failure.MALFORMED),
    "a lone surrogate": (
        streams(_event(b'{"choices": [{"index": 0, "delta": {"content": "\\ud800x"}}]}')), Failure.MALFORMED,
    ),
    "a NUL": (streams(_event(b'{"choices": [\x00]}')), Failure.MALFORMED),
    "deep nesting": (streams(_event(b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")), Failure.MALFORMED),
    "an endless line": (forever(b"data: " + b"x" * 65_536), Failure.MALFORMED),
    "an endless event": (forever(b"data: x\n" * 8_192), Failure.MALFORMED),
    "endless comments": (forever(b": still here\n\n" * 8_192), Failure.MALFORMED),
    "endless chunks": (forever(event([], pad="x" * 30_000) * 32), Failure.MALFORMED),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_STREAMS)
async def test_a_hostile_stream(name: str):
    reply, expected = HOSTILE_STREAMS[name]
    failed = await failure(reply, stream=True)
    assert failed.failure is expected
    assert failed.reached


def raw(data: bytes) -> Reply:
    async def reply(writer: Any, _: Any) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return reply


HOSTILE_ANSWERS: dict[str, tuple[Reply, Failure]] = {
    "not JSON": (says(200, b"<html>"), Failure.MALFORMED),
    "empty": (says(200, b""), Failure.MALFORMED),
    "no choices": (says(200, {"id": "x"}), Failure.MALFORMED),
    "fewer choices": (says(200, {"choices": []}), Failure.MALFORMED),
    "an unfinished choice": (says(200, whole(finish=None)), Failure.CUT_OFF),
    "an aborted choice": (says(200, whole(finish="abort")), Failure.CUT_OFF),
    "arguments that are no text": (
        says(200, whole({"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": {}}}]})),
        Failure.MALFORMED,
    ),
    "a 200 that holds an error": (says(200, {"error": {"message": "x", "type": "weird"}}), Failure.MALFORMED),
    "a 200 of overload": (says(200, {"error": {"code": 529}}), Failure.OVERLOADED),
    "a 200 of quota": (says(200, {"error": {"type": "insufficient_quota"}}), Failure.AUTHENTICATION),
    "an error at top level": (
        says(200, {"object": "error", "message": "x", "code": 500, "type": "InternalServerError"}),
        Failure.SERVER_ERROR,
    ),
    "no content": (says(204, b""), Failure.MALFORMED),
    "a compressed answer": (says(200, whole(), "Content-Encoding: gzip"), Failure.MALFORMED),
    "a length over the bound": (raw(head(200, "Content-Length: 99999999999") + b"{"), Failure.MALFORMED),
    "an endless body": (forever(b" " * 65_536), Failure.MALFORMED),
    "less than its length": (raw(head(200, "Content-Length: 1000") + b"{"), Failure.CUT_OFF),
    "not HTTP": (raw(b"SSH-2.0-x\r\n\r\n"), Failure.MALFORMED),
    "a bad chunk": (raw(head(200, "Transfer-Encoding: chunked") + b"zz\r\n"), Failure.MALFORMED),
    "an endless header": (raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"), Failure.MALFORMED),
    "endless headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000 + b"\r\n"), Failure.MALFORMED),
    "hangs up": (hangs_up, Failure.CUT_OFF),
}


@pytest.mark.parametrize("name", HOSTILE_ANSWERS)
async def test_a_hostile_answer(name: str):
    reply, expected = HOSTILE_ANSWERS[name]
    failed = await failure(reply, stream=False)
    assert failed.failure is expected
    assert failed.reached


@pytest.mark.parametrize("stream", [False, True])
async def test_a_redirect_is_not_followed(stream: bool):
    async with Vendor(says(200, whole())) as elsewhere:
        reply = says(307, b"", f"Location: http://127.0.0.1:{elsewhere.port}/v1/chat/completions")
        async with facing(reply) as (provider, _):
            with pytest.raises(ProviderFailure) as caught:
                await (collect(provider, call(stream=True)) if stream else provider.complete(call()))
    assert (caught.value.failure, caught.value.status, caught.value.reached) == (Failure.MALFORMED, 307, False)
    assert elsewhere.requests == []


async def test_cookies_are_forgotten():
    async with facing(says(200, whole(), "Set-Cookie: a=b")) as (provider, vendor):
        await provider.complete(call())
        await provider.complete(call())
    assert [request.header("cookie") for request in vendor.requests] == [None, None]


async def test_a_failed_stream_with_a_json_body_is_classed_by_it():
    async with facing(says(400, {"error": {"param": "tools[0]", "code": None}})) as (provider, _):
        with pytest.raises(ProviderFailure) as caught:
            await collect(provider, call(stream=True))
    assert (caught.value.failure, caught.value.status) == (Failure.REJECTED_CONTENT, 400)
