"""Answers in Anthropic's shape, whole and as events: the order of events, blocks that are never merged or shifted, stop
reasons and usage."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest

from terraflow.core.outcome import Problem, Refuse
from terraflow.core.reasons import Governed, ModelApi
from terraflow.gateway.exchange import Closed
from terraflow.gateway.mouths import errors
from terraflow.gateway.mouths.anthropic_messages import MESSAGES
from terraflow.gateway.mouths.messages_parse import parse
from terraflow.ports.upstream import Answer, Chunk, ModelRequest, Usage
from tests.harness.mouths import ANTHROPIC_ERRORS

Json = dict[str, Any]

REQUEST_ID = "req_" + "0" * 32
USAGE = Usage(input=10, cached_input=4, cache_write=2, output=5, reasoning=3)
THOUGHT = {"type": "thinking", "thinking": "hm, so", "signature": "sig=="}
REDACTED = {"type": "redacted_thinking", "data": "xyz"}


def asked() -> ModelRequest:
    found = parse(b'{"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}')
    assert isinstance(found, ModelRequest)
    return found


def call(number: int, arguments: str, name: str = "f") -> Json:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def begun(number: int, arguments: str = "", name: str = "f") -> Json:
    return {"tool_calls": [{"index": number, **call(number, arguments, name)}]}


def more(number: int, arguments: str) -> Json:
    return {"tool_calls": [{"index": number, "function": {"arguments": arguments}}]}


def rendered(message: Json, finish: str = "stop", stop_sequence: str | None = None, **extras: Any) -> Json:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    answer = Answer(choices=[choice], usage=USAGE, extras=extras, stop_sequence=stop_sequence)
    closed = Closed(
        request_id=REQUEST_ID, reason=Governed.PERMITTED, status=200, reasons=(), capability="c", answer=answer
    )
    body: Json = json.loads(MESSAGES.render(closed, 1))
    assert streamed_whole(answer) == (body["content"], body["stop_reason"], body["stop_sequence"])
    return body


def streamed_whole(answer: Answer) -> tuple[list[Json], str, str | None]:
    """What a client puts together of the same answer, sent as events."""
    writer = MESSAGES.writer(REQUEST_ID, "c", 1, asked())
    raw = b"".join(writer.event(chunk) for chunk in MESSAGES.collected(answer)) + writer.ending(answer.usage)
    return put_together(parsed(raw))


def parsed(raw: bytes) -> list[Json]:
    """The events' bodies; each event's name is its body's type."""
    events = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert events[-1]["type"] == name.removeprefix("event: ")
    return events


def put_together(events: list[Json]) -> tuple[list[Json], str, str | None]:
    """Reads a stream as strictly as its format is: one block at a time, numbered from zero, nothing after the end."""
    assert [e["type"] for e in events[:2]] == ["message_start", "ping"]
    assert [e["type"] for e in events[-2:]] == ["message_delta", "message_stop"]
    blocks: list[Json] = []
    arguments, is_open = "", False
    for event in events[2:-2]:
        if event["type"] == "content_block_start":
            assert not is_open and event["index"] == len(blocks)
            blocks.append(event["content_block"])
            arguments, is_open = "", True
            continue
        assert is_open and event["index"] == len(blocks) - 1
        block = blocks[-1]
        if event["type"] == "content_block_stop":
            is_open = False
            if arguments:
                block["input"] = json.loads(arguments)
            continue
        delta = event["delta"]
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block.setdefault("citations", []).append(delta["citation"])
            case "input_json_delta":
                assert block["type"] == "tool_use"
                arguments += delta["partial_json"]
    assert not is_open
    ended = events[-2]["delta"]
    return blocks, ended["stop_reason"], ended["stop_sequence"]


def test_a_whole_answer() -> None:
    body = rendered({"content": "Hello"}, service_tier="default")
    assert body["terraflow"]["reason_code"] == Governed.PERMITTED
    del body["terraflow"]
    assert body == {
        "id": "msg_" + "0" * 32,
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 2,
            "cache_read_input_tokens": 4,
            "output_tokens": 8,
            "output_tokens_details": {"thinking_tokens": 3},
            "service_tier": "standard",
        },
    }


@pytest.mark.parametrize(
    ("message", "finish", "stop_sequence", "stop_reason"),
    [
        ({"content": "x"}, "stop", None, "end_turn"),
        ({"content": "x"}, "stop", "END", "stop_sequence"),
        ({"content": "x"}, "length", None, "max_tokens"),
        ({"tool_calls": [call(0, "{}")]}, "tool_calls", None, "tool_use"),
        ({"tool_calls": [call(0, "{}")]}, "stop", None, "tool_use"),
        ({"tool_calls": [call(0, "{}")]}, "length", None, "max_tokens"),
        ({"content": "x"}, "content_filter", None, "refusal"),
        ({"refusal": "no"}, "stop", None, "refusal"),
    ],
)
def test_how_an_answer_ended(message: Json, finish: str, stop_sequence: str | None, stop_reason: str) -> None:
    body = rendered(message, finish, stop_sequence)
    assert (body["stop_reason"], body["stop_sequence"]) == (stop_reason, stop_sequence)


def test_a_stop_sequence_is_named_beside_its_own_reason_alone() -> None:
    body = rendered({"tool_calls": [call(0, "{}")]}, "tool_calls", "END")
    assert (body["stop_reason"], body["stop_sequence"]) == ("tool_use", None)


TEXT = {"type": "text", "text": "so"}


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"content": None}, []),
        ({"content": ""}, []),
        ({"refusal": "no"}, [{"type": "text", "text": "no"}]),
        ({"reasoning_content": "hm", "content": "so"}, [{"type": "thinking", "thinking": "hm", "signature": ""}, TEXT]),
        ({"reasoning": "hm", "content": "so"}, [{"type": "thinking", "thinking": "hm", "signature": ""}, TEXT]),
        (
            {"reasoning_content": "hm, so", "thinking_blocks": [THOUGHT, REDACTED, THOUGHT], "content": "so"},
            [THOUGHT, REDACTED, THOUGHT, TEXT],
        ),
        (
            {"content": "so", "tool_calls": [call(0, '{"a":1}'), call(1, "", "g"), call(2, '{"a":3}')]},
            [
                TEXT,
                {"type": "tool_use", "id": "call_0", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "call_1", "name": "g", "input": {}},
                {"type": "tool_use", "id": "call_2", "name": "f", "input": {"a": 3}},
            ],
        ),
    ],
)
def test_what_an_answer_says(message: Json, content: list[Json]) -> None:
    assert rendered(message)["content"] == content


LOCATION = {"type": "char_location", "cited_text": "a", "document_index": 0, "start_char_index": 0, "end_char_index": 1}


def test_citations_stay_with_their_text() -> None:
    plain = {"type": "text", "text": "So: ", "citations": []}
    cited = {"type": "text", "text": "a.", "citations": [LOCATION]}
    empty = {"type": "text", "text": "", "citations": []}
    content = [{"type": "text", "text": "So: "}, cited]
    assert rendered({"content": "So: a.", "text_blocks": [plain, empty, cited]})["content"] == content
    events = streamed(
        {"content": "So: "},
        {"text_blocks": [{"index": 0} | plain]},
        {"text_blocks": [{"index": 1} | empty]},
        {"content": "a."},
        {"text_blocks": [{"index": 2} | cited]},
    )
    assert put_together(events)[0] == content


def test_arguments_that_are_no_object_are_kept() -> None:
    choice = {"index": 0, "message": {"tool_calls": [call(0, '{"a":')]}, "finish_reason": "length"}
    closed = Closed(
        request_id=REQUEST_ID,
        reason=Governed.PERMITTED,
        status=200,
        reasons=(),
        answer=Answer(choices=[choice], usage=USAGE),
    )
    [block] = json.loads(MESSAGES.render(closed, 1))["content"]
    assert block["input"] == {"unparsed": '{"a":'}


def streamed(*deltas: Json, finish: str = "stop") -> list[Json]:
    """The events of a stream of these deltas, each chunk's in one list."""
    writer = MESSAGES.writer(REQUEST_ID, "c", 1, asked())
    chunks = [Chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    raw = b"".join(writer.event(chunk) for chunk in chunks)
    raw += writer.event(Chunk(choices=[{"index": 0, "delta": {}, "finish_reason": finish}]))
    raw += writer.event(Chunk(choices=[], usage=USAGE))
    return parsed(raw + writer.ending(USAGE))


def test_the_order_of_events() -> None:
    events = streamed({"role": "assistant", "content": ""}, {"content": "He"}, {"content": "llo"})
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    message = events[0]["message"]
    assert (message["id"], message["model"], message["content"]) == ("msg_" + "0" * 32, "c", [])
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == (None, 0)
    assert events[2]["content_block"] == {"type": "text", "text": ""}
    assert events[3]["delta"] == {"type": "text_delta", "text": "He"}
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2]["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 4,
        "output_tokens": 8,
        "output_tokens_details": {"thinking_tokens": 3},
    }


def test_the_first_delta_is_not_lost_and_nothing_waits_that_need_not() -> None:
    writer = MESSAGES.writer(REQUEST_ID, "c", 1, asked())
    first = writer.event(Chunk(choices=[{"index": 0, "delta": {"content": "He"}, "finish_reason": None}]))
    assert [e["type"] for e in parsed(first)] == [
        "message_start", "ping", "content_block_start", "content_block_delta",
    ]  # fmt: skip
    sent = writer.event(Chunk(choices=[{"index": 0, "delta": begun(0), "finish_reason": None}]))
    assert [e["type"] for e in parsed(sent)] == ["content_block_stop", "content_block_start"]
    sent = writer.event(Chunk(choices=[{"index": 0, "delta": more(0, '{"a"'), "finish_reason": None}]))
    assert [e["delta"]["partial_json"] for e in parsed(sent)] == ['{"a"']


def test_thinking_with_its_signature_and_what_is_hidden_of_it() -> None:
    events = streamed(
        {"reasoning_content": "hm, "},
        {"reasoning_content": "so"},
        {"thinking_blocks": [{"index": 0, **THOUGHT}]},
        {"thinking_blocks": [{"index": 1, **REDACTED}]},
        {"thinking_blocks": [{"index": 2, "type": "thinking", "thinking": "", "signature": "only"}]},
        {"content": "so"},
    )
    blocks, _, _ = put_together(events)
    hidden = {"type": "thinking", "thinking": "", "signature": "only"}
    assert blocks == [THOUGHT, REDACTED, hidden, TEXT]
    kinds = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert kinds == ["thinking_delta", "thinking_delta", "signature_delta", "signature_delta", "text_delta"]


def test_text_and_calls_in_turn_keep_their_turn() -> None:
    events = streamed({"content": "a"}, begun(0, "{}"), {"content": "b"}, begun(1, '{"x":1}'), finish="tool_calls")
    blocks, stop_reason, _ = put_together(events)
    assert [b.get("text") or b["id"] for b in blocks] == ["a", "call_0", "b", "call_1"]
    assert stop_reason == "tool_use"


_PIECES = [
    [begun(0), more(0, '{"a":'), more(0, '"zero"}')],
    [begun(1, '{"a":"o'), more(1, 'ne"}')],
    [begun(2), more(2, "{}")],
]


def _mixed() -> list[tuple[int, ...]]:
    """Every order in which the pieces of three calls can come, each call's own in their order."""
    which = [number for number, pieces in enumerate(_PIECES) for _ in pieces]
    return sorted(set(itertools.permutations(which)))


def test_parallel_calls_are_never_merged_or_shifted_however_their_pieces_come() -> None:
    orders = _mixed()
    assert len(orders) == 210
    for order in orders:
        left = [iter(pieces) for pieces in _PIECES]
        events = streamed(*(next(left[number]) for number in order), finish="tool_calls")
        blocks, _, _ = put_together(events)
        assert [b["id"] for b in blocks] == [f"call_{number}" for number in dict.fromkeys(order)]
        inputs = {b["id"]: b["input"] for b in blocks}
        assert inputs == {"call_0": {"a": "zero"}, "call_1": {"a": "one"}, "call_2": {}}


def test_a_call_without_arguments_and_one_whose_name_comes_late() -> None:
    nameless = {"tool_calls": [{"index": 1, "id": "late", "type": "function", "function": {"arguments": "{"}}]}
    named = {"tool_calls": [{"index": 1, "function": {"name": "g", "arguments": "}"}}]}
    blocks, _, _ = put_together(streamed(begun(0), nameless, named, finish="tool_calls"))
    assert [(b["id"], b["name"], b["input"]) for b in blocks] == [("call_0", "f", {}), ("late", "g", {})]


def test_arguments_that_end_in_pieces_of_an_object_are_not_taken_for_whole() -> None:
    pieces = [begun(0, '{"a":{"b":1}'), begun(1, "{}"), more(0, " "), more(0, "}"), {"content": "done"}]
    blocks, _, _ = put_together(streamed(*pieces, finish="tool_calls"))
    assert [b.get("input") or b.get("text") or b["id"] for b in blocks] == [{"a": {"b": 1}}, "call_1", "done"]


def test_many_pieces_of_mixed_calls_take_no_more_than_their_number() -> None:
    whole = json.dumps({"a": ["}"] * 20_000})
    pieces = [more(n, whole[at : at + 8]) for at in range(0, len(whole), 8) for n in (0, 1)]
    started = time.process_time()
    blocks, _, _ = put_together(streamed(begun(0), begun(1), *pieces, finish="tool_calls"))
    assert time.process_time() - started < 5
    assert [b["input"] for b in blocks] == [json.loads(whole)] * 2


@pytest.mark.parametrize("call", [{}, {"function": None}, {"function": {}}, {"custom": {"name": "", "input": None}}])
def test_a_call_without_anything_is_no_fault(call: Json) -> None:
    [block] = rendered({"tool_calls": [{"id": "x"} | call]})["content"]
    assert block == {"type": "tool_use", "id": "x", "name": "", "input": {}}


def test_an_empty_answer_is_a_whole_stream() -> None:
    assert put_together(streamed({"role": "assistant", "content": ""}, finish="length")) == ([], "max_tokens", None)


def test_a_stop_sequence_is_named_at_the_end() -> None:
    writer = MESSAGES.writer(REQUEST_ID, "c", 1, asked())
    ended = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    raw = writer.event(Chunk(choices=[ended], stop_sequence="END")) + writer.ending(USAGE)
    assert put_together(parsed(raw))[1:] == ("stop_sequence", "END")


@pytest.mark.parametrize("status", ANTHROPIC_ERRORS)
def test_errors_have_anthropics_types(status: int) -> None:
    closed = Closed(request_id=REQUEST_ID, reason=Governed.QUEUE_SHED, status=status, reasons=())
    body = json.loads(MESSAGES.error(errors.governed(closed)))
    assert (body["type"], body["request_id"]) == ("error", REQUEST_ID)
    assert (body["error"]["type"], body["error"]["code"]) == (ANTHROPIC_ERRORS[status], Governed.QUEUE_SHED)
    [event] = parsed(MESSAGES.error_event(MESSAGES.error(errors.governed(closed))))
    assert event == body


def test_an_error_from_before_governance() -> None:
    refuse = Refuse(reason=ModelApi.INVALID_REQUEST, problems=(Problem(field="messages", rule="is required"),))
    body = json.loads(MESSAGES.error(errors.ungoverned(refuse, None)))
    assert set(body) == {"type", "error", "request_id", "terraflow"}
    assert body["error"]["message"].endswith("messages is required.")
    assert body["terraflow"]["details"] == {"problems": [{"field": "messages", "rule": "is required"}]}
