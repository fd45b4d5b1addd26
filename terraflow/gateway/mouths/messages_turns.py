"""The turns of a Messages body in neutral form, block by block.

1. A turn's blocks keep their order. Results of tools become messages of their own, where they stand; an assistant's
   tool calls come behind its text, and its thinking before it: where they stood otherwise, `core.block_order` says so.
2. Text that comes as one plain block becomes a plain string, which every endpoint takes.
3. Images and files count as in `attachments`.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from terraflow.core.block_order import CALL, TEXT, THINKING, order_of
from terraflow.gateway.mouths import messages_shape as shape
from terraflow.gateway.mouths.attachments import FILE_TOKENS_MAX, IMAGE_TOKENS_MAX

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Attached:
    """What a request's attachments can cost."""

    __slots__ = ("inline_bytes", "tokens")

    def __init__(self) -> None:
        self.inline_bytes = 0
        self.tokens = 0


def marked(made: Json, block: Any) -> Json:
    """What was made of a block, with the block's cache mark."""
    if block.cache_control is not None:
        made["cache_control"] = plain(block.cache_control)
    return made


def texts(content: str | list[Any]) -> str | list[Json]:
    """Text blocks, by rule 2."""
    if isinstance(content, str):
        return content
    if len(content) == 1 and content[0].cache_control is None and content[0].citations is None:
        only: str = content[0].text
        return only
    return [_text(block) for block in content]


def _text(block: shape.Text) -> Json:
    made = marked({"type": "text", "text": block.text}, block)
    if block.citations:
        made["citations"] = block.citations
    return made


def user(turn: shape.User, messages: list[Json], attached: Attached) -> None:
    """Put a user's turn behind the messages."""
    if isinstance(turn.content, str):
        messages.append({"role": "user", "content": turn.content})
        return
    parts: list[Any] = []
    for block in turn.content:
        if isinstance(block, shape.ToolResult):
            if parts:
                messages.append({"role": "user", "content": _parts(parts, attached)})
                parts = []
            messages.append(_tool_result(block, attached))
        else:
            parts.append(block)
    if parts:
        messages.append({"role": "user", "content": _parts(parts, attached)})


def _tool_result(block: shape.ToolResult, attached: Attached) -> Json:
    content = block.content or ""
    made: Json = {"role": "tool", "tool_call_id": block.tool_use_id}
    made["content"] = content if isinstance(content, str) else _parts(content, attached)
    if block.is_error:
        made["is_error"] = True
    return marked(made, block)


def _parts(blocks: list[Any], attached: Attached) -> str | list[Json]:
    if len(blocks) == 1 and isinstance(blocks[0], shape.Text):
        return texts(blocks)
    return [_part(block, attached) for block in blocks]


def _part(block: Any, attached: Attached) -> Json:
    if isinstance(block, shape.Text):
        return _text(block)
    if isinstance(block, shape.Image):
        return marked({"type": "image_url", "image_url": {"url": _image_url(block, attached)}}, block)
    if isinstance(block, shape.Document):
        return _document(block, attached)
    return marked({"type": "search_result", **_without_mark(block)}, block)


def _image_url(block: shape.Image, attached: Attached) -> str:
    attached.tokens += IMAGE_TOKENS_MAX
    source = block.source
    if isinstance(source, shape.Url):
        return source.url
    url = f"data:{source.media_type};base64,{source.data}"
    attached.inline_bytes += len(source.data)
    return url


def _document(block: shape.Document, attached: Attached) -> Json:
    """OpenAI's `file` where it says all, else the block as it came."""
    source = block.source
    attached.tokens += FILE_TOKENS_MAX if isinstance(source, shape.Url) else IMAGE_TOKENS_MAX
    plain = block.context is None and block.citations is None
    if not plain or not isinstance(source, shape.PdfData | shape.PlainText):
        if isinstance(source, shape.Blocks) and not isinstance(source.content, str):
            attached.tokens += IMAGE_TOKENS_MAX * sum(isinstance(inner, shape.Image) for inner in source.content)
        return marked({"type": "document", **_without_mark(block)}, block)
    data = source.data
    if isinstance(source, shape.PlainText):
        data = base64.b64encode(data.encode()).decode()
    file = {"file_data": f"data:{source.media_type};base64,{data}"}
    if block.title is not None:
        file["filename"] = block.title
    return marked({"type": "file", "file": file}, block)


def _without_mark(block: msgspec.Struct) -> Json:
    made = plain(block)
    made.pop("cache_control", None)
    return made


def plain(value: msgspec.Struct) -> Json:
    """A struct as JSON has it, without what was not given."""
    made: Json = _dense(msgspec.to_builtins(value))
    return made


def _dense(value: Any) -> Any:
    """Without the fields that were not given."""
    if isinstance(value, dict):
        return {key: _dense(inner) for key, inner in value.items() if inner is not None}
    return [_dense(inner) for inner in value] if isinstance(value, list) else value


def assistant(turn: shape.Assistant) -> Json:
    """The message of a model's turn."""
    if isinstance(turn.content, str):
        return {"role": "assistant", "content": turn.content}
    thoughts: list[Json] = []
    said: list[shape.Text] = []
    calls: list[Json] = []
    kinds: list[tuple[str, int]] = []
    for block in turn.content:
        if isinstance(block, shape.Text):
            said.append(block)
            kinds.append((TEXT, len(block.text)))
        elif isinstance(block, shape.ToolUse):
            function = {"name": block.name, "arguments": _encode(block.input).decode()}
            calls.append(marked({"id": block.id, "type": "function", "function": function}, block))
            kinds.append((CALL, 0))
        else:
            thoughts.append(msgspec.to_builtins(block))
            kinds.append((THINKING, 0))
    made: Json = {"role": "assistant", "content": texts(said) if said else None}
    if thoughts:
        made["thinking_blocks"] = thoughts
    if calls:
        made["tool_calls"] = calls
    order = order_of(kinds)
    if order is not None:
        made["block_order"] = order
    return made
