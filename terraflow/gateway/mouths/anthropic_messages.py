"""`POST /v1/messages`: Anthropic's Messages shape in, Anthropic's Messages shape out; and `count_tokens` beside it.

1. The `model` of an answer is the capability that gave it; `id` is made of the request id.
2. `count_tokens` asks no provider: it is an estimate, four bytes a token, and governs and costs nothing.
"""

from __future__ import annotations

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.strict_json import NODES_MAX
from terraflow.gateway.mouths.errors import anthropic_error
from terraflow.gateway.mouths.messages_events import EventWriter, error_event
from terraflow.gateway.mouths.messages_parse import count_tokens, parse
from terraflow.gateway.mouths.messages_render import render
from terraflow.gateway.mouths.mouth import Mouth
from terraflow.gateway.mouths.openai_chat import whole_as_chunks

_encode = msgspec.json.Encoder().encode


def counted(raw: bytes, values_max: int = NODES_MAX) -> bytes | Refuse:
    """The body of an answer of `count_tokens`, or INVALID_REQUEST with what is wrong."""
    found = count_tokens(raw, values_max)
    return found if isinstance(found, Refuse) else _encode({"input_tokens": found})


MESSAGES = Mouth(
    name="messages",
    request_id_header=b"request-id",
    parse=parse,
    render=render,
    writer=EventWriter,
    collected=whole_as_chunks,
    error=anthropic_error,
    error_event=error_event,
)
