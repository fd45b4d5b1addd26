"""What is not text is bounded by what it can cost, and is seen by its parts alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from terraflow.core.outcome import Refuse
from terraflow.gateway.mouths.attachments import AUDIO_BYTES_PER_TOKEN, FILE_TOKENS_MAX, IMAGE_TOKENS_MAX
from terraflow.gateway.mouths.messages_parse import count_tokens
from terraflow.gateway.mouths.messages_parse import parse as parse_messages
from terraflow.gateway.mouths.openai_chat import parse
from terraflow.ports.upstream import ModelRequest, Usage, tokens_of

WAVE = {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}


def parsed(*parts: Any, **body: Any) -> ModelRequest:
    content = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else list(parts)
    found = parse(json.dumps({"messages": [{"role": "user", "content": content}], **body}).encode())
    assert isinstance(found, ModelRequest), found
    return found


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def test_text_is_a_token_a_byte() -> None:
    request = parsed("hello")
    assert request.input_bound == request.size_bytes
    assert not request.audio


def test_an_image_costs_by_its_pixels_not_by_its_address_or_bytes() -> None:
    remote = parsed(image("https://example.com/a.png"))
    assert remote.input_bound == remote.size_bytes + IMAGE_TOKENS_MAX
    inline = parsed(image("data:image/png;base64," + "A" * 300_000))
    assert inline.input_bound < IMAGE_TOKENS_MAX + 1_000
    assert parsed(*[image("https://x/")] * 20).attachment_tokens_max == 20 * IMAGE_TOKENS_MAX


def test_audio_is_what_has_a_part_for_it_and_not_what_speaks_of_it() -> None:
    assert not parsed("what does input_audio mean?").audio
    spelled = json.dumps({"messages": [{"role": "user", "content": [WAVE]}]}).replace(
        "input_audio", "input\\u005faudio", 1
    )
    found = parse(spelled.encode())
    assert isinstance(found, ModelRequest) and found.audio
    data = "A" * 640_000
    heard = parsed({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}})
    assert heard.attachment_tokens_max == len(data) // AUDIO_BYTES_PER_TOKEN
    assert heard.input_bound < len(data)
    assert parsed("say it", modalities=["text", "audio"], audio={"voice": "x", "format": "wav"}).audio


def test_a_file_by_id_may_be_long() -> None:
    assert parsed({"type": "file", "file": {"file_id": "f"}}).attachment_tokens_max == FILE_TOKENS_MAX
    inline = parsed({"type": "file", "file": {"file_data": "A" * 5_000, "filename": "a.pdf"}})
    assert inline.input_bound == inline.size_bytes + IMAGE_TOKENS_MAX


@pytest.mark.parametrize(
    "body",
    [
        {"service_tier": "priority"},
        {"tool_choice": {"type": "function"}},
        {"tool_choice": {"type": "nonsense"}},
        {"tool_choice": "sometimes"},
        {"function_call": {"nome": "f"}},
    ],
)
def test_what_has_no_price_or_no_shape_is_refused(body: dict[str, Any]) -> None:
    assert isinstance(parse(json.dumps({"messages": [{"role": "user", "content": "x"}], **body}).encode()), Refuse)


@pytest.mark.parametrize("blocks", ["text", 3, ["text"], [{"type": "thinking"}], [{"type": "other"}]])
def test_thoughts_that_are_none_are_refused(blocks: Any) -> None:
    message = {"role": "assistant", "content": "a", "thinking_blocks": blocks}
    assert isinstance(parse(json.dumps({"messages": [message]}).encode()), Refuse)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "hello, " * 50},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 300_000}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
    ],
    ids=["text", "image", "document"],
)
def test_an_input_has_one_estimate_asked_beforehand_or_counted_afterwards(part: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": [part]}]}
    steered = body | {"model": "m", "max_tokens": 9}
    request = parse_messages(json.dumps(steered).encode())
    assert isinstance(request, ModelRequest), request
    asked = count_tokens(json.dumps(body).encode())
    assert isinstance(asked, int)
    assert Usage.counted(request, 0).input == request.input_estimate <= request.input_bound
    assert 0 < request.input_estimate - asked <= tokens_of(len(json.dumps(steered)) - len(json.dumps(body)))
    assert request.input_estimate >= request.attachment_tokens_max, "a bound of tokens is no bytes"


def test_an_estimate_is_four_bytes_a_token_and_an_attachments_whole_bound() -> None:
    assert parsed("hello").input_estimate == -(-parsed("hello").size_bytes // 4)
    remote = parsed(image("https://example.com/a.png"))
    assert remote.input_estimate == -(-remote.size_bytes // 4) + IMAGE_TOKENS_MAX
