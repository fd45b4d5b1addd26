"""Anthropic's API as a model behind a plane: whole messages, and the events of a stream."""

from __future__ import annotations

import json
from typing import Any

from tests.harness.bundle import Json, remote
from tests.providers.vendor import Reply, says


def anthropic_at(name: str, port: int) -> Json:
    """A capability: Anthropic's API on this machine."""
    return remote(name, port, provider="anthropic", dialect="current", endpoint=f"http://127.0.0.1:{port}")


def claude_says(*content: Json, stop: str = "end_turn") -> Reply:
    """A whole message."""
    usage = {
        "input_tokens": 4,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 3,
        "output_tokens": 5,
    }
    made = {"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": list(content)}
    return says(200, made | {"stop_reason": stop, "stop_sequence": None, "usage": usage})


def event(kind: str, **fields: Any) -> bytes:
    """One event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


BEGUN = event(
    "message_start",
    message={
        "id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 1},
    },
)  # fmt: skip


def block(index: int, start: Json, *deltas: Json) -> list[bytes]:
    """The events of one block."""
    pieces = [event("content_block_delta", index=index, delta=delta) for delta in deltas]
    opened = event("content_block_start", index=index, content_block=start)
    return [opened, *pieces, event("content_block_stop", index=index)]


def ended(stop: str = "end_turn") -> list[bytes]:
    """The last two events."""
    return [event("message_delta", delta={"stop_reason": stop}, usage={"output_tokens": 5}), event("message_stop")]
