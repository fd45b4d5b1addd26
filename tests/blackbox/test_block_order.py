"""A model that thinks again after a call: its blocks reach the caller in the order in which they came, however they
reach it, and go back in that order. Anthropic refuses a turn whose thinking stands elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote
from tests.harness.caller import Caller, headers_of
from tests.harness.claude import BEGUN, anthropic_at, block, claude_says, ended
from tests.harness.mouths import CHAT, MESSAGES
from tests.harness.upstreams import answer
from tests.providers.vendor import Vendor, streams

TOOL: Json = {"name": "look_up", "input_schema": {"type": "object"}}
CHAT_TOOL: Json = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def _use(n: int) -> Json:
    return {"type": "tool_use", "id": f"toolu_{n}", "name": "look_up", "input": {"n": n}}


def _thought(text: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": f"sig-{text}"}


CONTENT: list[Json] = [
    _thought("first"),
    {"type": "text", "text": "Noting é."},
    _use(0),
    _thought("second"),
    {"type": "redacted_thinking", "data": "hidden"},
    _use(1),
    {"type": "text", "text": "Both noted."},
]
RESULTS: list[Json] = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "done"} for n in range(2)]
ASKED: Json = {"role": "user", "content": "Note twice."}


def _flow() -> Any:
    events: list[bytes] = []
    for at, made in enumerate(CONTENT):
        if made["type"] == "thinking":
            deltas = [{"type": f"{k}_delta", k: made[k]} for k in ("thinking", "signature")]
            events += block(at, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)
        elif made["type"] == "text":
            begun, *pieces = made["text"][:2], made["text"][2:5], made["text"][5:]
            events += block(at, {"type": "text", "text": begun}, *({"type": "text_delta", "text": p} for p in pieces))
        elif made["type"] == "tool_use":
            delta = {"type": "input_json_delta", "partial_json": json.dumps(made["input"])}
            events += block(at, made | {"input": {}}, delta)
        else:
            events += block(at, made)
    return streams(BEGUN, *events, *ended("tool_use"))


@pytest.fixture(scope="module")
def site(launch_shared: Launch, claude: Vendor, engine: Vendor) -> Site:
    model = anthropic_at("claude", claude.port)
    return launch_shared(
        bundle.document(
            purpose("plain", model, tools=["look_up"]),
            purpose("buffered", model, tools=["look_up"], output={"stream": "buffered"}),
            purpose("cached", model, tools=["look_up"], response_cache={"ttl_s": 600}),
            purpose("other", remote("engine", engine.port), tools=["look_up"]),
        )
    )


@pytest.fixture
def caller(site: Site, monkeypatch: pytest.MonkeyPatch) -> Caller:
    monkeypatch.setattr(Caller, "mouth", MESSAGES)
    return site.caller


def _body(*turns: Json, **fields: Any) -> Json:
    return {"max_tokens": 100, "messages": [ASKED, *turns], "tools": [TOOL]} | fields


def _told(raw: str) -> list[Json]:
    """The content that a client puts together of a stream's events."""
    made: list[Json] = []
    for line in raw.splitlines():
        event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
        if event.get("type") == "content_block_start":
            assert event["index"] == len(made)
            made.append(event["content_block"] | ({"input": ""} if "input" in event["content_block"] else {}))
        if event.get("type") == "content_block_delta":
            delta = event["delta"]
            kept = {"partial_json": "input"}
            (field,) = delta.keys() - {"type"}
            made[event["index"]][kept.get(field, field)] += delta[field]
    return [one | ({"input": json.loads(one["input"])} if "input" in one else {}) for one in made]


def test_a_whole_answer(caller: Caller, claude: Vendor) -> None:
    claude.replies[:] = [claude_says(*CONTENT, stop="tool_use")]
    assert caller.post(_body(), headers_of("plain"), MESSAGES.path).json()["content"] == CONTENT


@pytest.mark.parametrize("workload", ["plain", "buffered"])
def test_a_stream(workload: str, caller: Caller, claude: Vendor) -> None:
    claude.replies[:] = [_flow() if workload == "plain" else claude_says(*CONTENT, stop="tool_use")]
    assert _told(caller.post(_body(stream=True), headers_of(workload), MESSAGES.path).text) == CONTENT


@pytest.mark.parametrize("stream", [False, True])
def test_a_stream_that_is_given_again(stream: bool, caller: Caller, claude: Vendor) -> None:
    claude.replies[:] = [_flow()]
    headers = headers_of("plain", key=f"again {stream}")
    body = _body(stream=True)
    assert _told(caller.post(body, headers, MESSAGES.path).text) == CONTENT
    calls = len(claude.requests)
    assert _told(caller.post(body, headers, MESSAGES.path).text) == CONTENT
    fields = {"stream": stream, "system": f"cached {stream}"}
    for _ in range(2):
        claude.replies[:] = [_flow() if stream else claude_says(*CONTENT, stop="tool_use")]
        raw = caller.post(_body(**fields), headers_of("cached"), MESSAGES.path)
        assert (_told(raw.text) if stream else raw.json()["content"]) == CONTENT
    assert len(claude.requests) == calls + 1


def test_it_goes_back_as_it_came(caller: Caller, claude: Vendor) -> None:
    claude.replies[:] = [claude_says({"type": "text", "text": "Good."})]
    turns = [{"role": "assistant", "content": CONTENT}, {"role": "user", "content": RESULTS}]
    assert caller.post(_body(*turns), headers_of("plain"), MESSAGES.path).status_code == 200
    assert claude.requests[-1].body["messages"][1:] == turns


def test_it_comes_and_goes_through_chat(site: Site, claude: Vendor) -> None:
    claude.replies[:] = [claude_says(*CONTENT, stop="tool_use")]
    asked: Json = {"messages": [ASKED], "tools": [CHAT_TOOL], "max_tokens": 100}
    said = site.caller.post(asked, headers_of("plain"), CHAT.path).json()["choices"][0]["message"]
    assert said["content"] == "Noting é.Both noted."
    results = [{"role": "tool", "tool_call_id": f"toolu_{n}", "content": "done"} for n in range(2)]
    again = asked | {"messages": [ASKED, said, *results]}
    assert site.caller.post(again, headers_of("plain"), CHAT.path).status_code == 200
    assert claude.requests[-1].body["messages"][1] == {"role": "assistant", "content": CONTENT}


@pytest.mark.parametrize("mouth", [CHAT, MESSAGES], ids=["chat", "messages"])
def test_another_vendor_is_told_nothing_of_it(mouth: Any, site: Site, engine: Vendor) -> None:
    engine.replies[:] = [answer()]
    calls = [
        {"id": f"toolu_{n}", "type": "function", "function": {"name": "look_up", "arguments": f'{{"n":{n}}}'}}
        for n in range(2)
    ]
    said = {"role": "assistant", "content": "x", "tool_calls": calls, "block_order": [{"type": "tool_use"}]}
    results = [{"role": "tool", "tool_call_id": f"toolu_{n}", "content": "done"} for n in range(2)]
    body: Json = {"messages": [ASKED, said, *results], "tools": [CHAT_TOOL], "max_tokens": 100}
    if mouth is MESSAGES:
        body = _body({"role": "assistant", "content": CONTENT}, {"role": "user", "content": RESULTS})
    assert site.caller.post(body, headers_of("other"), mouth.path).status_code == 200
    sent = engine.requests[-1].body["messages"][1]
    assert set(sent) - {"reasoning_content"} == {"role", "content", "tool_calls"}
    assert sent["tool_calls"] == calls
