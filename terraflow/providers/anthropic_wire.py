"""What Anthropic's Messages API may send back, typed.

1. A block, a delta or a finish that is not here is no answer: nothing was asked for that could bring it (server
   tools). An event type that is not here is skipped, as the API's versioning rules ask.
2. `input_tokens` does not count what was read from or written to the cache; `output_tokens` does count thinking,
   which `output_tokens_details` names where the model says. Each token ends in one field of `Usage`.

Source: the types of Anthropic's client library; "Streaming messages" and "Prompt caching" in its documentation.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from terraflow.core.anthropic_words import TIERS_USED
from terraflow.ports.upstream import Beside, Usage
from terraflow.providers.incidental import UNSAID, known

_Tokens = Annotated[int, Meta(ge=0, le=1_000_000_000)]
_Index = Annotated[int, Meta(ge=0, le=4095)]
_Word = Annotated[str, Meta(max_length=256)]

FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
OWN_FINISHES = frozenset({"model_context_window_exceeded"})
"""Those that share OpenAI's word with a finish of another name."""
SERVICE_TIERS = {said: used for used, said in TIERS_USED.items()}


class _InDocument(msgspec.Struct, kw_only=True):
    cited_text: str
    document_index: _Index
    document_title: str | None = None


class CharLocation(_InDocument, tag_field="type", tag="char_location", kw_only=True):
    start_char_index: int
    end_char_index: int


class PageLocation(_InDocument, tag_field="type", tag="page_location", kw_only=True):
    start_page_number: int
    end_page_number: int


class BlockLocation(_InDocument, tag_field="type", tag="content_block_location", kw_only=True):
    start_block_index: int
    end_block_index: int


class SearchResultLocation(msgspec.Struct, tag_field="type", tag="search_result_location"):
    cited_text: str
    search_result_index: _Index
    start_block_index: int
    end_block_index: int
    source: str
    title: str | None = None


Citation = CharLocation | PageLocation | BlockLocation | SearchResultLocation


class Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str
    citations: list[Citation] | None = None


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = ""


class Redacted(msgspec.Struct, tag_field="type", tag="redacted_thinking"):
    data: str


class ToolUse(msgspec.Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw


Block = Text | ThinkingBlock | Redacted | ToolUse


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    text: str


class JsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta"):
    partial_json: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta"):
    signature: str


class CitationsDelta(msgspec.Struct, tag_field="type", tag="citations_delta"):
    citation: Citation


Delta = TextDelta | JsonDelta | ThinkingDelta | SignatureDelta | CitationsDelta


class OutputDetails(msgspec.Struct):
    thinking_tokens: _Tokens | None = None


class CacheCreation(msgspec.Struct, omit_defaults=True):
    """What was written to the cache, by how long it lives."""

    ephemeral_5m_input_tokens: _Tokens | None = None
    ephemeral_1h_input_tokens: _Tokens | None = None


class StopDetails(msgspec.Struct, tag_field="type", tag="refusal"):
    """Why a model or its filter refused, in the API's words."""

    category: _Word | None = None
    explanation: str | None = None


_STOP_DETAILS = msgspec.json.Decoder(StopDetails | None)


class WireUsage(msgspec.Struct):
    """Both of a message and of `message_delta`, whose counts are cumulative and may leave some out."""

    input_tokens: _Tokens | None = None
    output_tokens: _Tokens | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    output_tokens_details: OutputDetails | None = None
    service_tier: _Word | None = None
    cache_creation: CacheCreation | None = None
    inference_geo: _Word | None = None


class Message(msgspec.Struct, tag_field="type", tag="message"):
    content: list[Block]
    usage: WireUsage
    stop_reason: _Word | None = None
    stop_sequence: str | None = None
    stop_details: msgspec.Raw = UNSAID


class MessageStart(msgspec.Struct, tag_field="type", tag="message_start"):
    message: Message


class BlockStart(msgspec.Struct, tag_field="type", tag="content_block_start"):
    index: _Index
    content_block: Block


class BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta"):
    index: _Index
    delta: Delta


class BlockStop(msgspec.Struct, tag_field="type", tag="content_block_stop"):
    index: _Index


class MessageDeltaBody(msgspec.Struct):
    stop_reason: _Word | None = None
    stop_sequence: str | None = None
    stop_details: msgspec.Raw = UNSAID


class MessageDelta(msgspec.Struct, tag_field="type", tag="message_delta"):
    delta: MessageDeltaBody
    usage: WireUsage


class MessageStop(msgspec.Struct, tag_field="type", tag="message_stop"):
    pass


class Ping(msgspec.Struct, tag_field="type", tag="ping"):
    pass


Event = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping
EVENT_TYPES = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
     "message_stop", "ping", "error"}
)  # fmt: skip


class EventType(msgspec.Struct):
    """An event as far as its name, for one whose body nobody knows."""

    type: _Word


def usage_of(wire: WireUsage, begun: WireUsage | None = None) -> Usage | None:
    """Disjoint counts; what `wire` leaves out is taken from the start of the message. None when either side of the
    exchange was counted in neither: nothing is not zero."""
    begun = begun or WireUsage()

    def last(now: int | None, before: int | None) -> int | None:
        return before if now is None else now

    read, output = last(wire.input_tokens, begun.input_tokens), last(wire.output_tokens, begun.output_tokens)
    if read is None or output is None:
        return None
    details = wire.output_tokens_details or begun.output_tokens_details or OutputDetails()
    thought = min(details.thinking_tokens or 0, output)
    return Usage(
        input=read,
        cached_input=last(wire.cache_read_input_tokens, begun.cache_read_input_tokens) or 0,
        cache_write=last(wire.cache_creation_input_tokens, begun.cache_creation_input_tokens) or 0,
        output=output - thought,
        reasoning=thought,
    )


def beside_of(usage: WireUsage, ended: Message | MessageDeltaBody) -> Beside:
    """What is said beside the counts of `usage`, which an answer begins with, and of how it ended."""
    own = ended.stop_reason if ended.stop_reason in OWN_FINISHES else None
    more: dict[str, Any] = {}
    if usage.cache_creation is not None:
        more["cache_creation"] = msgspec.to_builtins(usage.cache_creation)
    if usage.inference_geo is not None:
        more["inference_geo"] = usage.inference_geo
    details = known(ended.stop_details, _STOP_DETAILS)
    return Beside(stop_reason=own, stop_details=None if details is None else msgspec.to_builtins(details), usage=more)
