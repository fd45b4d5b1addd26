"""A vendor's own client, straight to the vendor and through the plane: what it puts together of an answer is the same,
field by field, whole and streamed. Of the other vendor's answers, it puts together the same whole and streamed.

The answers are in the vendors' present formats (Anthropic "Streaming messages", OpenAI "Chat completion chunk").
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote
from tests.harness.claude import anthropic_at, block, event
from tests.harness.upstreams import DONE, flow
from tests.harness.vendor_clients import PARAMETERS
from tests.providers.vendor import Reply, Vendor, says, streams

CACHE: Json = {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 0}
SPENT: Json = {
    "input_tokens": 25,
    "cache_creation_input_tokens": 40,
    "cache_read_input_tokens": 300,
    "output_tokens": 89,
}
SERVED: Json = {"cache_creation": CACHE, "service_tier": "standard", "inference_geo": "not_available"}
REFUSED: Json = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
UNSAID = {"id", "model", "terraflow", "created"}
"""What the plane says in its own way."""


def _use(name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": f"toolu_{name}", "name": "weather", "input": arguments}


def _thought(said: str) -> Json:
    return {"type": "thinking", "thinking": said, "signature": f"Eq{said}=="}


LOCATION: Json = {
    "type": "char_location",
    "cited_text": "The sky is blue.",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 16,
}
MESSAGES: dict[str, tuple[list[Json], str, str | None]] = {
    "text": ([{"type": "text", "text": "Grüße, 世界 🌍."}], "end_turn", None),
    "cut": ([{"type": "text", "text": "Grüße"}], "max_tokens", None),
    "stopped": ([{"type": "text", "text": "1, 2"}], "stop_sequence", "END"),
    "calls": (
        [{"type": "text", "text": "Both."}, _use("a", city="Pune"), _use("b"), _use("c", city="Oslo")],
        "tool_use",
        None,
    ),
    "calls alone": ([_use("a", city="Zürich", deep={"x": [1, 2.5, None]})], "tool_use", None),
    "thinking": (
        [_thought("hm"), {"type": "redacted_thinking", "data": "EmwK"}, {"type": "text", "text": "So."}],
        "end_turn",
        None,
    ),
    "omitted thinking": ([_thought(""), {"type": "text", "text": "So."}], "end_turn", None),
    "thinking between calls": ([_thought("a"), _use("a", city="Pune"), _thought("b"), _use("b")], "tool_use", None),
    "citations": (
        [
            {"type": "text", "text": "It says "},
            {"type": "text", "text": "the sky is blue", "citations": [LOCATION]},
            {"type": "text", "text": "."},
        ],
        "end_turn",
        None,
    ),
    "nothing": ([], "end_turn", None),
    "no more window": ([{"type": "text", "text": "Grü"}], "model_context_window_exceeded", None),
    "refused": ([{"type": "text", "text": "Gr"}], "refusal", None),
}
ASKED: Json = {
    "max_tokens": 100,
    "messages": [
        {
            "role": "user",
            "content": [
                {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": "The sky is blue."},
                    "citations": {"enabled": True},
                }
            ],
        }
    ],
    "tools": [{"name": "weather", "input_schema": PARAMETERS}],
}


def _message(name: str) -> Json:
    content, stop, sequence = MESSAGES[name]
    made: Json = {"id": "msg_01", "type": "message", "role": "assistant", "model": "m", "content": content}
    return made | {"stop_reason": stop, "stop_sequence": sequence, "usage": SPENT | SERVED} | _details(stop)


def _details(stop: str) -> Json:
    return {"stop_details": REFUSED if stop == "refusal" else None}


def _deltas(made: Json) -> tuple[Json, list[Json]]:
    """How a block begins, and what follows."""
    if made["type"] == "text":
        cites = [{"type": "citations_delta", "citation": one} for one in made.get("citations", ())]
        cut = len(made["text"]) // 2
        said = [{"type": "text_delta", "text": piece} for piece in (made["text"][:cut], made["text"][cut:])]
        return {"type": "text", "text": ""} | ({"citations": []} if cites else {}), [*said, *cites]
    if made["type"] == "tool_use":
        text = json.dumps(made["input"]) if made["input"] else ""
        pieces = ("", text[:5], text[5:]) if text else ()
        return made | {"input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    if made["type"] == "thinking":
        said = [{"type": "thinking_delta", "thinking": piece} for piece in made["thinking"]]
        return _thought("") | {"signature": ""}, [*said, {"type": "signature_delta", "signature": made["signature"]}]
    return made, []


def _events(name: str) -> Reply:
    whole = _message(name)
    begun = whole | {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    begun["usage"] = begun["usage"] | {"output_tokens": 1}
    pieces = [event("message_start", message=begun), event("ping")]
    for at, made in enumerate(whole["content"]):
        start, deltas = _deltas(made)
        pieces += block(at, start, *deltas)
    ended = {key: whole[key] for key in ("stop_reason", "stop_sequence", "stop_details")}
    pieces += [event("message_delta", delta=ended, usage=SPENT, context_management=None), event("message_stop")]
    raw = b"".join(pieces)
    # Wherever the network cuts, in a character too.
    return streams(*(raw[at : at + 7] for at in range(0, len(raw), 7)))


CALLS: list[Json] = [
    {"id": f"call_{x}", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": x})}}
    for x in ("Pune", "Zürich")
]
LOGPROBS: Json = {
    "content": [
        {
            "token": "Hi",
            "logprob": -0.5,
            "bytes": [72, 105],
            "top_logprobs": [{"token": "Hi", "logprob": -0.5, "bytes": None}],
        }
    ],
    "refusal": None,
}
COUNTED: Json = {
    "prompt_tokens": 100,
    "completion_tokens": 40,
    "total_tokens": 140,
    "prompt_tokens_details": {
        "cached_tokens": 64,
        "audio_tokens": 0,
        "cache_write_tokens": 8,
        "text_tokens": 90,
        "image_tokens": 10,
    },
    "completion_tokens_details": {
        "reasoning_tokens": 16,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 5,
        "rejected_prediction_tokens": 3,
        "text_tokens": 24,
    },
}
ABOUT: Json = {"service_tier": "default", "system_fingerprint": "fp_44709d6fcb"}
COMPLETIONS: dict[str, list[Json]] = {
    "text": [{"message": {"content": "Grüße, 世界 🌍."}, "finish_reason": "stop"}],
    "cut": [{"message": {"content": "Grü"}, "finish_reason": "length"}],
    "calls": [{"message": {"content": "Both.", "tool_calls": CALLS}, "finish_reason": "tool_calls"}],
    "calls alone": [{"message": {"content": None, "tool_calls": CALLS[:1]}, "finish_reason": "tool_calls"}],
    "a call by name": [{"message": {"content": None, "tool_calls": CALLS[:1]}, "finish_reason": "stop"}],
    "refusal": [{"message": {"content": None, "refusal": "I cannot."}, "finish_reason": "stop"}],
    "logprobs": [{"message": {"content": "Hi"}, "finish_reason": "stop", "logprobs": LOGPROBS}],
    "two": [
        {"message": {"content": "One"}, "finish_reason": "stop"},
        {"message": {"content": "Two"}, "finish_reason": "stop"},
    ],
}


def _completion(name: str) -> Json:
    choices = [
        {"index": at, "logprobs": None}
        | choice
        | {"message": {"role": "assistant", "refusal": None} | choice["message"]}
        for at, choice in enumerate(COMPLETIONS[name])
    ]
    made: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    return made | ABOUT | {"usage": COUNTED}


def _chunks(name: str, *, counted: bool) -> Reply:
    def chunk(*choices: Json, **fields: Any) -> bytes:
        made: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        made |= ABOUT | {"choices": list(choices), "obfuscation": "x7"} | fields
        return b"data: " + json.dumps(made | ({"usage": None} if counted and choices else {})).encode() + b"\n\n"

    def delta(at: int, said: Json, **fields: Any) -> bytes:
        return chunk({"index": at, "delta": said, "logprobs": None, "finish_reason": None} | fields)

    pieces = []
    for at, choice in enumerate(COMPLETIONS[name]):
        message = choice["message"]
        pieces.append(delta(at, {"role": "assistant", "content": message["content"] and "", "refusal": None}))
        for field in ("content", "refusal"):
            text = message.get(field) or ""
            scored = choice.get("logprobs")
            halves = (text,) if scored else (text[:2], text[2:])
            pieces += [delta(at, {field: half}, logprobs=scored) for half in halves if half]
        calls = message.get("tool_calls", ())
        for n, call in enumerate(calls):
            begun = call | {"index": n, "function": {"name": call["function"]["name"], "arguments": ""}}
            arguments = call["function"]["arguments"]
            pieces.append(delta(at, {"tool_calls": [begun]}))
            pieces += [
                delta(at, {"tool_calls": [{"index": n, "function": {"arguments": half}}]})
                for half in (arguments[:4], arguments[4:])
            ]
    for at, choice in enumerate(COMPLETIONS[name]):
        pieces.append(delta(at, {}, finish_reason=choice["finish_reason"]))
    raw = b"".join([*pieces, chunk(usage=COUNTED), DONE]) if counted else b"".join([*pieces, DONE])
    return flow(*(raw[at : at + 11] for at in range(0, len(raw), 11)))


@pytest.fixture(scope="module")
def site(launch_shared: Launch, claude: Vendor, engine: Vendor) -> Site:
    return launch_shared(
        bundle.document(
            purpose("thinks", anthropic_at("claude", claude.port), tools=["weather"]),
            purpose("talks", remote("engine", engine.port), tools=["weather"]),
        )
    )


def _known(value: Any) -> Any:
    """Without what the plane says in its own way, and without what nobody said."""
    if isinstance(value, dict):
        return {key: _known(inner) for key, inner in value.items() if key not in UNSAID and inner is not None}
    return [_known(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message(name: str, stream: bool, site: Site, claude: Vendor) -> None:
    if name == "refused" and not stream:
        _is_filtered(site, claude)
        return
    claude.replies[:] = [_events(name) if stream else says(200, _message(name))]
    heard, began = [], []
    bases = (f"http://127.0.0.1:{claude.port}", site.plane.base_url.removesuffix("/v1"))
    for base in bases:
        with anthropic.Anthropic(base_url=base, api_key=site.caller.api_key, timeout=20, max_retries=0) as client:
            if stream:
                with client.messages.stream(model="thinks", **ASKED) as streamed:
                    first = next(iter(streamed))
                    assert first.type == "message_start"
                    began.append(_known(first.message.usage.model_dump(mode="json")))
                    told: anthropic.types.Message = streamed.get_final_message()
            else:
                told = client.messages.create(model="thinks", **ASKED)
        heard.append(_known(told.model_dump(mode="json", warnings=False)))
    assert heard[1] == heard[0]
    assert heard[0]["usage"] == SPENT | SERVED
    assert not stream or began[0] == began[1] == heard[0]["usage"] | {"output_tokens": 1}


def _is_filtered(site: Site, claude: Vendor) -> None:
    """A whole answer that its vendor's filter stopped is none."""
    claude.replies[:] = [says(200, _message("refused"))]
    base = site.plane.base_url.removesuffix("/v1")
    with (
        anthropic.Anthropic(base_url=base, api_key=site.caller.api_key, timeout=20, max_retries=0) as client,
        pytest.raises(anthropic.BadRequestError, match="CONTENT_FILTERED"),
    ):
        client.messages.create(model="thinks", **ASKED)


@pytest.mark.parametrize("name", COMPLETIONS)
def test_a_completion(name: str, site: Site, engine: Vendor) -> None:
    engine.replies[:] = [says(200, _completion(name))]
    heard = []
    for base in (f"http://127.0.0.1:{engine.port}/v1", site.plane.base_url):
        with openai.OpenAI(base_url=base, api_key=site.caller.api_key, timeout=20, max_retries=0) as client:
            told = client.chat.completions.create(
                model="talks", messages=[{"role": "user", "content": "Hi"}], n=len(COMPLETIONS[name])
            )
        heard.append(_known(told.model_dump(mode="json", warnings=False)))
    assert heard[1] == heard[0]


@pytest.mark.parametrize("counted", [False, True], ids=["usage unasked", "usage asked"])
@pytest.mark.parametrize("name", [name for name in COMPLETIONS if name != "cut"])
def test_a_streamed_completion(name: str, counted: bool, site: Site, engine: Vendor) -> None:
    """The plane asks for the usage always; who did not ask for it sees what the vendor shows those who did not. The
    client's helper raises for an answer that was cut."""
    options: Json = {"stream_options": {"include_usage": True}} if counted else {}
    heard = []
    for base in (f"http://127.0.0.1:{engine.port}/v1", site.plane.base_url):
        engine.replies[:] = [_chunks(name, counted=counted or base == site.plane.base_url)]
        with (
            openai.OpenAI(base_url=base, api_key=site.caller.api_key, timeout=20, max_retries=0) as client,
            client.chat.completions.stream(
                model="talks", messages=[{"role": "user", "content": "Hi"}], n=len(COMPLETIONS[name]), **options
            ) as streamed,
        ):
            told = streamed.get_final_completion()
        heard.append(_known(told.model_dump(mode="json", warnings=False)))
    assert heard[1] == heard[0]
    assert ("usage" in heard[1]) is counted


def _plain(value: Any) -> Any:
    """What is the same of an answer, whole or streamed: a stream begins with an empty text, and numbers its blocks."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key != "index" and inner not in ("", None, [])}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "refused"])
def test_a_message_again(name: str, stream: bool, site: Site, claude: Vendor) -> None:
    claude.replies[:] = [_events(name) if stream else says(200, _message(name))]
    heard = []
    base = site.plane.base_url.removesuffix("/v1")
    for _ in range(2):
        with anthropic.Anthropic(
            base_url=base,
            api_key=site.caller.api_key,
            timeout=20,
            max_retries=0,
            default_headers={"Idempotency-Key": f"again {name} {stream}"},
        ) as client:
            if stream:
                with client.messages.stream(model="thinks", **ASKED) as streamed:
                    told: anthropic.types.Message = streamed.get_final_message()
            else:
                told = client.messages.create(model="thinks", **ASKED)
        heard.append(_known(told.model_dump(mode="json", warnings=False)))
        claude.replies[:] = [says(500, {})]
    assert heard[1] == heard[0]


@pytest.mark.parametrize("name", [name for name in COMPLETIONS if name != "cut"])
def test_a_streamed_completion_again(name: str, site: Site, engine: Vendor) -> None:
    engine.replies[:] = [_chunks(name, counted=True)]
    heard = []
    for _ in range(2):
        with (
            openai.OpenAI(
                base_url=site.plane.base_url,
                api_key=site.caller.api_key,
                timeout=20,
                max_retries=0,
                default_headers={"Idempotency-Key": f"again {name}"},
            ) as client,
            client.chat.completions.stream(
                model="talks",
                messages=[{"role": "user", "content": "Hi"}],
                n=len(COMPLETIONS[name]),
                stream_options={"include_usage": True},
            ) as streamed,
        ):
            told = streamed.get_final_completion()
        heard.append(_known(told.model_dump(mode="json", warnings=False)))
        engine.replies[:] = [says(500, {})]
    assert heard[1] == heard[0]
    assert heard[0]["usage"] == COUNTED


UNCHATTED = ("cut", "no more window", "refused", "citations")
"""Answers for which OpenAI's helper raises, and those to what chat has no words to ask for."""


@pytest.mark.parametrize("name", [name for name in MESSAGES if name not in UNCHATTED])
def test_a_message_through_chat(name: str, site: Site, claude: Vendor) -> None:
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
    asked: Any = {"model": "thinks", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    with openai.OpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, timeout=20, max_retries=0) as client:
        claude.replies[:] = [says(200, _message(name))]
        whole = client.chat.completions.create(**asked).model_dump(mode="json", warnings=False)
        claude.replies[:] = [_events(name)]
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as streamed:
            flowed = streamed.get_final_completion().model_dump(mode="json", warnings=False)
    for told in (whole, flowed):
        assert told["usage"]["prompt_tokens"] == 365
        assert told["usage"]["prompt_tokens_details"]["cached_tokens"] == 300
        for choice in told["choices"]:
            for call in choice["message"].get("tool_calls") or ():
                call["function"] = {
                    "name": call["function"]["name"],
                    "arguments": json.loads(call["function"]["arguments"]),
                }
    assert _plain(_known(flowed)) == _plain(_known(whole))


@pytest.mark.parametrize("name", [name for name in COMPLETIONS if name != "two"])
def test_a_completion_through_messages(name: str, site: Site, engine: Vendor) -> None:
    asked: Any = {"model": "talks", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    asked["tools"] = ASKED["tools"]
    base = site.plane.base_url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=base, api_key=site.caller.api_key, timeout=20, max_retries=0) as client:
        engine.replies[:] = [says(200, _completion(name))]
        whole = client.messages.create(**asked).model_dump(mode="json", warnings=False)
        engine.replies[:] = [_chunks(name, counted=True)]
        with client.messages.stream(**asked) as streamed:
            flowed = streamed.get_final_message().model_dump(mode="json", warnings=False)
    counts = {"input_tokens": 28, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 8, "output_tokens": 40}
    served = {"service_tier": "standard", "output_tokens_details": {"thinking_tokens": 16}}
    assert _known(whole)["usage"] == counts | served
    assert _known(flowed) == _known(whole)
    assert (whole["stop_reason"] == "tool_use") is ("call" in name)
