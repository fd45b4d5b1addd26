"""Servers that perform the acts of a script in a vendor's own wire form, written from the vendors' references, so
that one suite of behaviour runs over every provider."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

from terraflow.contracts.script import Act, SimulatedUsage
from terraflow.ports.upstream import Failure
from tests.providers.vendor import Reply, Request, hangs_up, head, says, silence

VENDOR_TEXT = "VENDOR-TEXT-THAT-MUST-STAY-INSIDE"

OPENAI_REFUSALS: dict[Failure, tuple[int, dict[str, Any]]] = {
    Failure.RATE_LIMITED: (429, {"type": "requests", "code": "rate_limit_exceeded", "param": None}),
    Failure.OVERLOADED: (503, {"type": "server_error", "code": "service_unavailable", "param": None}),
    Failure.SERVER_ERROR: (500, {"type": "server_error", "code": None, "param": None}),
    Failure.AUTHENTICATION: (401, {"type": "invalid_request_error", "code": "invalid_api_key", "param": None}),
    Failure.MODEL_NOT_FOUND: (404, {"type": "invalid_request_error", "code": "model_not_found", "param": None}),
    Failure.REJECTED_CONTENT: (400, {"type": "invalid_request_error", "code": None, "param": "messages[0].content"}),
    Failure.MISMATCH: (400, {"type": "invalid_request_error", "code": "unsupported_parameter", "param": "top_p"}),
    Failure.CONTENT_FILTERED: (400, {"type": None, "code": "content_filter", "param": "prompt"}),
}
ANTHROPIC_REFUSALS: dict[Failure, tuple[int, dict[str, Any]]] = {
    Failure.RATE_LIMITED: (429, {"type": "rate_limit_error", "message": VENDOR_TEXT}),
    Failure.OVERLOADED: (529, {"type": "overloaded_error", "message": VENDOR_TEXT}),
    Failure.SERVER_ERROR: (500, {"type": "api_error", "message": VENDOR_TEXT}),
    Failure.AUTHENTICATION: (401, {"type": "authentication_error", "message": VENDOR_TEXT}),
    Failure.MODEL_NOT_FOUND: (404, {"type": "not_found_error", "message": "model: model-1"}),
    Failure.REJECTED_CONTENT: (400, {"type": "invalid_request_error", "message": "messages.0.content: " + VENDOR_TEXT}),
    Failure.MISMATCH: (400, {"type": "invalid_request_error", "message": "top_p: " + VENDOR_TEXT}),
}


def speak_openai(act: Act) -> Reply:
    """OpenAI's chat completions."""
    if act.fail is Failure.CONNECT:
        raise AssertionError("no server can refuse a connection that it accepted")
    if act.fail in OPENAI_REFUSALS and not act.fail_after_chunks:
        status, error = OPENAI_REFUSALS[act.fail]
        return _later(act, says(status, {"error": {"message": VENDOR_TEXT, **error}}, *_retry(act)))

    async def reply(writer: asyncio.StreamWriter, request: Request) -> None:
        asked = request.body
        room = asked["max_completion_tokens"] * 4
        if not asked.get("stream"):
            await _whole(writer, request, act, _openai_whole(act, room, asked.get("n", 1)))
            return
        assert asked["stream_options"] == {"include_usage": True}
        events = [b"data: " + json.dumps(body).encode() + b"\n\n" for body in _openai_events(act, room)]
        await _stream(writer, act, events, b"data: [DONE]\n\n")

    return reply


def speak_anthropic(act: Act) -> Reply:
    """Anthropic's Messages API."""
    if act.fail in ANTHROPIC_REFUSALS and not act.fail_after_chunks:
        status, error = ANTHROPIC_REFUSALS[act.fail]
        body = {"type": "error", "error": error, "request_id": "req_x"}
        return _later(act, says(status, body, *_retry(act)))

    async def reply(writer: asyncio.StreamWriter, request: Request) -> None:
        asked = request.body
        assert request.header("anthropic-version") == "2023-06-01"
        room = asked["max_tokens"] * 4
        if not asked.get("stream"):
            await _whole(writer, request, act, _anthropic_whole(act, room))
            return
        events = [
            f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode() for body in _anthropic_events(act, room)
        ]
        await _stream(writer, act, events[:-1], events[-1])

    return reply


def _retry(act: Act) -> list[str]:
    return [] if act.retry_after_s is None else [f"Retry-After: {act.retry_after_s:g}"]


def _later(act: Act, reply: Reply) -> Reply:
    async def later(writer: asyncio.StreamWriter, request: Request) -> None:
        await asyncio.sleep(act.latency_ms / 1000)
        await reply(writer, request)

    return later


async def _whole(writer: asyncio.StreamWriter, request: Request, act: Act, body: dict[str, Any]) -> None:
    await asyncio.sleep(act.latency_ms / 1000)
    if act.stall_after_chunks is not None or act.fail is Failure.TIMEOUT:
        await silence(writer, request)
    if act.fail is Failure.CUT_OFF:
        await hangs_up(writer, request)
    elif act.fail is Failure.MALFORMED:
        await says(200, {"answer": VENDOR_TEXT})(writer, request)
    else:
        await says(200, body)(writer, request)


async def _stream(writer: asyncio.StreamWriter, act: Act, events: list[bytes], ending: bytes) -> None:
    def send(data: bytes) -> None:
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    await asyncio.sleep(act.latency_ms / 1000)
    writer.write(head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))
    for sent, event in enumerate(events):
        if sent == act.stall_after_chunks or (act.fail is Failure.TIMEOUT and sent == act.fail_after_chunks):
            await asyncio.sleep(60)
        if act.fail is Failure.CUT_OFF and sent == act.fail_after_chunks:
            writer.transport.abort()
            return
        if act.fail is Failure.MALFORMED and sent == act.fail_after_chunks:
            send(b'data: {"choices": 1}\n\n')
        send(event)
        await writer.drain()
        await asyncio.sleep(act.chunk_interval_ms / 1000)
    send(ending)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _cut(act: Act, room: int) -> tuple[str, bool]:
    text = act.text or ""
    return text[:room], len(text) > room


def _openai_usage(act: Act) -> dict[str, Any]:
    usage = act.usage or SimulatedUsage(input=10, output=5)
    return {
        "prompt_tokens": (usage.input or 0) + usage.cached_input + usage.cache_write,
        "completion_tokens": (usage.output or 0) + usage.reasoning,
        "total_tokens": 0,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input, "cache_write_tokens": usage.cache_write, "audio_tokens": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }  # fmt: skip


def _openai_finish(act: Act, short: bool) -> str:
    return act.finish_reason or ("tool_calls" if act.tool_calls else "length" if short else "stop")


def _openai_whole(act: Act, room: int, choices: int) -> dict[str, Any]:
    text, short = _cut(act, room)
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None, "annotations": []}
    if act.reasoning is not None:
        message["reasoning_content"] = act.reasoning
    if act.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for i, c in enumerate(act.tool_calls)
        ]
    body: dict[str, Any] = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "model-1-2026",
        "system_fingerprint": "fp_1", "service_tier": "default",
        "choices": [
            {"index": i, "message": message, "logprobs": None, "finish_reason": _openai_finish(act, short)}
            for i in range(choices)
        ],
    }  # fmt: skip
    if act.usage_reported:
        body["usage"] = _openai_usage(act)
    return body


def _openai_events(act: Act, room: int) -> list[dict[str, Any]]:
    text, short = _cut(act, room)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "", "refusal": None}]
    if act.reasoning is not None:
        deltas.append({"reasoning_content": act.reasoning})
    deltas += [{"content": piece} for piece in _pieces(text, act.chunks)]
    for i, called in enumerate(act.tool_calls):
        function = {"name": called.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": i, "id": f"call_{i}", "type": "function", "function": function}]})
        deltas += [
            {"tool_calls": [{"index": i, "function": {"arguments": piece}}]} for piece in _pieces(called.arguments, 3)
        ]
    frame = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "model-1-2026",
        "system_fingerprint": "fp_1", "service_tier": "default", "usage": None,
    }  # fmt: skip
    events = [{**frame, "choices": [{"index": 0, "delta": d, "logprobs": None, "finish_reason": None}]} for d in deltas]
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _openai_finish(act, short)}
    events.append({**frame, "choices": [last]})
    if act.usage_reported:
        events.append({**frame, "choices": [], "usage": _openai_usage(act)})
    return events


def _anthropic_usage(act: Act) -> dict[str, Any]:
    usage = act.usage or SimulatedUsage(input=10, output=5)
    return {
        "input_tokens": usage.input,
        "cache_read_input_tokens": usage.cached_input,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": (usage.output or 0) + usage.reasoning,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }


def _anthropic_stop(act: Act, short: bool) -> str:
    said = {None: None, "stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
    reason = said[act.finish_reason]
    return reason or ("tool_use" if act.tool_calls else "max_tokens" if short else "end_turn")


def _anthropic_whole(act: Act, room: int) -> dict[str, Any]:
    text, short = _cut(act, room)
    content: list[dict[str, Any]] = []
    if act.reasoning is not None:
        content.append({"type": "thinking", "thinking": act.reasoning, "signature": "sig=="})
    if text:
        content.append({"type": "text", "text": text, "citations": None})
    content += [
        {"type": "tool_use", "id": f"call_{i}", "name": c.name, "input": json.loads(c.arguments)}
        for i, c in enumerate(act.tool_calls)
    ]
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "model-1", "content": content,
        "stop_reason": _anthropic_stop(act, short), "stop_sequence": None, "usage": _anthropic_usage(act),
    }  # fmt: skip


def _anthropic_events(act: Act, room: int) -> list[dict[str, Any]]:
    text, short = _cut(act, room)
    usage = _anthropic_usage(act)
    begun = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "model-1", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1},
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    index = 0
    if act.reasoning is not None:
        events += _block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(act.reasoning, 2)]
            + [{"type": "signature_delta", "signature": "sig=="}],
        )
        index += 1
    if text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(text, act.chunks)]
        events += _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for i, called in enumerate(act.tool_calls):
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *_pieces(called.arguments, 3)]]
        events += _block(index + i, {"type": "tool_use", "id": f"call_{i}", "name": called.name, "input": {}}, deltas)
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": _anthropic_stop(act, short), "stop_sequence": None},
            "usage": {"output_tokens": usage["output_tokens"],
                      "output_tokens_details": usage["output_tokens_details"]},
        }
    )  # fmt: skip
    events.append({"type": "message_stop"})
    return events


def _block(index: int, block: dict[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _pieces(text: str, count: int) -> list[str]:
    count = min(count, len(text))
    return [text[len(text) * a // count : len(text) * b // count] for a, b in pairwise(range(count + 1))]
