"""A vendor of OpenAI's shape for the adapter's tests: the adapter that faces it, its events and its answers."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from terraflow.contracts.capability import ProviderKind
from tests.providers.facing import facing_vendor

DONE = b"data: [DONE]\n\n"


facing = partial(facing_vendor, ProviderKind.OPENAI, path="/v1")
"""The adapter and its vendor, who answers so; a `dialect` may be named."""


def event(choices: list[dict[str, Any]], **fields: Any) -> bytes:
    return (
        b"data: "
        + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": choices, **fields}).encode()
        + b"\n\n"
    )


def piece(delta: dict[str, Any], finish: str | None = None, index: int = 0, **fields: Any) -> bytes:
    return event([{"index": index, "delta": delta, "finish_reason": finish, **fields}])


def whole(message: dict[str, Any] | None = None, finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "hi", "refusal": None} if message is None else message
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        **fields,
    }


HELLO = [piece({"role": "assistant", "content": ""}), piece({"content": "hi"})]
WHOLE = b"".join([*HELLO, piece({}, "stop"), DONE])
