"""Which fields inside a request's messages, tools and formats the Messages API can be told: a row a place.

1. A field without a place in its row is refused before anything is sent: what it asks for would be dropped. One that is
   null asks for nothing.
2. `LEFT_BEHIND` is what answers have and requests say in other words: clients send it back unasked.
3. What is refused is named by its place alone: the field itself may be the caller's content.
4. A cache mark inside a document or a search result is one as well.
"""

from __future__ import annotations

from typing import Any

from terraflow.core.anthropic_words import TOOL_FIELDS
from terraflow.core.chat_fields import UNKNOWN_FIELD
from terraflow.providers.failures import unsupported

Json = dict[str, Any]

LEFT_BEHIND = frozenset({"annotations", "reasoning", "reasoning_content", "text_blocks"})
"""Of an assistant's message: copies of what its content and its thinking say, and where on the web that was found."""

_MARK = "cache_control"
_BREAKPOINT = "prompt_cache_breakpoint"
# fmt: off
MESSAGE = frozenset({"role", "content", "name", "refusal", "tool_calls", "tool_call_id", "function_call", "audio",
                     "thinking_blocks", "block_order", "is_error", _MARK}) | LEFT_BEHIND
CALL =     frozenset({"id", "type", "index", "function", "custom", _MARK})
CALLED =   frozenset({"name", "arguments"})
PARTS: dict[str, frozenset[str]] = {
    "text":            frozenset({"type", "text", "citations", _MARK, _BREAKPOINT}),
    "refusal":         frozenset({"type", "refusal", _MARK, _BREAKPOINT}),
    "image_url":       frozenset({"type", "image_url", _MARK, _BREAKPOINT}),
    "file":            frozenset({"type", "file", _MARK, _BREAKPOINT}),
}
IMAGE =    frozenset({"url", "detail"})
FILE =     frozenset({"file_data", "filename"})
TOOL =     frozenset({"type", "function", _MARK, *TOOL_FIELDS})
FUNCTION = frozenset({"name", "description", "parameters", "strict", _MARK})
CHOICE =   frozenset({"type", "function"})
CHOSEN =   frozenset({"name"})
FORMAT =   frozenset({"type", "json_schema"})
SCHEMA =   frozenset({"name", "description", "schema", "strict"})
# fmt: on


def only(value: Json, fields: frozenset[str], place: str) -> None:
    """Nothing but these fields. Raises ProviderFailure: UNSUPPORTED_FIELD, naming the place."""
    if value.keys() <= fields:
        return
    if any(value[field] is not None for field in value.keys() - fields):
        raise unsupported(place)


def unknown_in(place: str) -> str:
    """The name of an unknown field of a place."""
    return f"{place}.{UNKNOWN_FIELD}"


def marks_in(value: Any) -> list[Any]:
    """The cache marks below a block, wherever they stand in it."""
    if isinstance(value, list):
        return [mark for inner in value for mark in marks_in(inner)]
    if not isinstance(value, dict):
        return []
    found = [value[_MARK]] if _MARK in value else []
    return found + [mark for key, inner in value.items() if key != _MARK for mark in marks_in(inner)]
