"""The strings of a request that would reach a model, and what in it is not text.

1. Collected are string values, object keys, and numbers of nine digits and more, in document order. Group 0
   holds what stands outside messages; each message has a group of its own.
2. Keys and values of the API's own vocabulary (`role`, `content`, `"type": "text"` …) are not collected: they
   are constants that hold nothing of the caller's, and between the parts of a message they would hide a split
   value. For the same reason a message's names and ids (`name`, `id`, `tool_call_id`) go to group 0.
3. An image, audio, video or file part is an attachment, and so is a content part of a type that is not known.
   What it carries as base64 is not text and is not collected; its other strings (a remote URL, a file's name)
   are.
4. A text/plain document is text: it is decoded and collected. What cannot be decoded is an attachment.
5. Nesting above `DEPTH_MAX` raises TooDeep.
"""

from __future__ import annotations

import binascii
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from terraflow.classify.findings import TooDeep

DEPTH_MAX = 64
NUMBER_LEAST = 100_000_000

_VOCABULARY = """
role content type text messages model stream tools tool_calls tool_call_id function name description
parameters properties required arguments id index user stop temperature top_p n seed max_tokens
max_completion_tokens logprobs top_logprobs response_format json_schema schema strict stream_options
include_usage tool_choice parallel_tool_calls presence_penalty frequency_penalty logit_bias metadata store
reasoning_effort items enum additionalProperties default format image_url url detail input_audio data file
file_data filename file_id refusal system thinking signature input source media_type cache_control
is_error tool_use_id title context citations thinking_blocks block_order characters
output_config
"""
VOCABULARY = frozenset(_VOCABULARY.split())
ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_TEXT_PARTS = """
text input_text output_text refusal tool_use tool_result function thinking redacted_thinking reasoning
reasoning_text summary_text search_result content custom tool_call ephemeral json json_schema json_object
object string number integer boolean array null
"""
TEXT_PARTS = frozenset(_TEXT_PARTS.split())
_ATTACHMENT_PARTS = """
image image_url input_image input_audio audio file input_file document video video_url input_video media
"""
ATTACHMENT_PARTS = frozenset(_ATTACHMENT_PARTS.split())
_ASIDE = frozenset(("name", "id", "tool_call_id", "tool_use_id"))
_HOLDERS = ATTACHMENT_PARTS | {"source"}
_PAYLOAD_KEYS = frozenset(("data", "file_data"))


class Surface(NamedTuple):
    """What `collect` found: the strings by group, and whether any part carries what is not text."""

    groups: list[list[str]]
    attachments: bool


def collect(document: dict[str, Any]) -> Surface:
    """The surface of a parsed request body. Raises TooDeep."""
    walk = _Walk()
    for key, value in document.items():
        if key == "messages" and isinstance(value, list):
            for message in value:
                walk.message(message)
        else:
            walk.key(key, walk.outside)
            walk.value(value, walk.outside, 2, key)
    return Surface([walk.outside, *walk.messages], walk.attachments)


class _Walk:
    """One walk over a document; recursion is as deep as the document and so bounded."""

    def __init__(self) -> None:
        self.outside: list[str] = []
        self.messages: list[list[str]] = []
        self.attachments = False

    def key(self, key: str, into: list[str]) -> None:
        if key not in VOCABULARY:
            into.append(key)

    def message(self, message: Any) -> None:
        group: list[str] = []
        self.messages.append(group)
        if not isinstance(message, dict):
            self.value(message, group, 3, "")
            return
        for key, value in message.items():
            if type(value) is str and (key == "content" or (key == "role" and value in ROLES)):
                if key == "content":
                    group.append(value)
                continue
            self.member(key, value, group, 4)
            if key == "content" and type(value) is list:
                self.unknown_parts(value)
            elif key in ATTACHMENT_PARTS and value is not None:
                self.attachments = True

    def unknown_parts(self, parts: list[Any]) -> None:
        """A part of a type that nobody here knows may be a file; it counts as one."""
        for part in parts:
            kind = part.get("type") if type(part) is dict else None
            if type(part) is not str and kind not in TEXT_PARTS and kind not in ATTACHMENT_PARTS:
                self.attachments = True

    def member(self, key: str, value: Any, group: list[str], depth: int) -> None:
        self.key(key, group)
        if type(value) is str:
            if key == "type" and (value in TEXT_PARTS or value in ATTACHMENT_PARTS):
                return
            (self.outside if key in _ASIDE else group).append(value)
        else:
            self.value(value, group, depth, key)

    def value(self, value: Any, into: list[str], depth: int, key: str) -> None:
        kind = type(value)
        if kind is str:
            into.append(value)
        elif depth > DEPTH_MAX and (kind is dict or kind is list):
            raise TooDeep(DEPTH_MAX)
        elif kind is dict:
            if into is not self.outside and value.get("type") in ATTACHMENT_PARTS:
                self.attachment(value, into, depth, value.get("media_type"))
                return
            for name, inner in value.items():
                self.member(name, inner, into, depth + 1)
        elif kind is list:
            for inner in value:
                self.value(inner, into, depth + 1, key)
        elif kind is int:
            if abs(value) >= NUMBER_LEAST:
                into.append(str(value))
        elif kind is float:
            self.number(value, into)

    def number(self, value: float, into: list[str]) -> None:
        """A float as digits: whole ones without the point that would hide them, others as JSON writes them."""
        text = f"{value:.0f}" if value.is_integer() else repr(value)
        if sum(map(str.isdigit, text)) >= 9:
            into.append(text)

    def attachment(self, part: Any, into: list[str], depth: int, media_type: object) -> None:
        """A part that carries a file: its payload is judged, its other strings are collected."""
        if depth > DEPTH_MAX:
            raise TooDeep(DEPTH_MAX)
        payload_is_text = False
        for key, value in part.items():
            if type(value) is dict and key in _HOLDERS:
                self.key(key, into)
                self.attachment(value, into, depth + 1, value.get("media_type", media_type))
                payload_is_text = True
            elif type(value) is str and (key in _PAYLOAD_KEYS or value[:5].lower() == "data:"):
                text = _plain_text(value, part.get("type"), media_type)
                if text is not None:
                    into.append(text)
                    payload_is_text = True
            else:
                self.member(key, value, into, depth + 1)
        if not payload_is_text:
            self.attachments = True


def _plain_text(payload: str, source: object, media_type: object) -> str | None:
    """The text of a text/plain payload: a `data:` URL, or base64 or text beside its media type. Else None."""
    if payload[:5].lower() == "data:":
        head, comma, body = payload[5:].partition(",")
        kind, *parameters = head.lower().split(";")
        if kind.strip() != "text/plain" or not comma:
            return None
        encoded = "base64" in (p.strip() for p in parameters)
        raw = _base64(body) if encoded else unquote_to_bytes(body)
    elif media_type == "text/plain":
        raw = payload.encode("utf-8", "replace") if source == "text" else _base64(payload)
    else:
        return None
    try:
        return None if raw is None else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _base64(body: str) -> bytes | None:
    try:
        return binascii.a2b_base64(body.encode("ascii"), strict_mode=True)
    except (ValueError, UnicodeEncodeError):
        return None
