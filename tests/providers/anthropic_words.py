"""Requests in Anthropic's words, for the tests of the adapter."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.contracts.capability import Dialect
from terraflow.ports.upstream import ProviderFailure
from terraflow.providers.anthropic_request import translate_request
from terraflow.providers.anthropic_thinking import Thinking
from tests.providers.sample import call

USER = {"role": "user", "content": "Say hello."}
SAID = {"role": "user", "content": [{"type": "text", "text": "Say hello."}]}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "d", "parameters": PARAMETERS, "strict": True},
}
SENT_TOOL = {"name": "weather", "description": "d", "input_schema": PARAMETERS, "strict": True}
MARK = {"type": "ephemeral", "ttl": "5m"}
CALLED = {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def translated(dialect: Dialect = Dialect.CURRENT, **fields: Any) -> dict[str, Any]:
    asked = call(**fields)
    return translate_request("claude", Thinking(dialect), asked, stream=asked.request.stream)


def body_of(**fields: Any) -> dict[str, Any]:
    """The body without what every request has."""
    body = translated(**fields)
    assert (body.pop("model"), body.pop("max_tokens"), body.pop("messages")) == ("claude", 1_000, [SAID])
    return body


def refused(dialect: Dialect = Dialect.CURRENT, **fields: Any) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as caught:
        translated(dialect, **fields)
    assert not caught.value.reached
    assert caught.value.__context__ is None
    return caught.value
