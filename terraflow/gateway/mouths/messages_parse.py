"""A Messages body in neutral form.

1. What OpenAI's chat shape has a place for goes there; the rest goes into the extension fields of
   docs/adr/0019-extension-fields.md, one name each. Nothing is left out: what has neither place is not in the shape.
2. A turn's blocks keep their order. Results of tools become messages of their own, where they stand; an assistant's
   tool calls come behind its text, and its thinking before it: where they stood otherwise, `core.block_order` says so.
3. Text that comes as one plain block becomes a plain string, which every endpoint takes.
4. Images and files count as in `attachments`; a tool that the vendor defines brings instructions of the vendor's, at
   most `TOOL_TOKENS_MAX`.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from terraflow.core.anthropic_words import TIERS_ASKED, TOOL_FIELDS
from terraflow.core.block_order import CALL, TEXT, THINKING, order_of
from terraflow.core.outcome import Problem, Refuse, invalid_request
from terraflow.core.strict_json import NODES_MAX, BadJson, parse_json
from terraflow.gateway.mouths import messages_shape as shape
from terraflow.gateway.mouths.attachments import FILE_TOKENS_MAX, IMAGE_TOKENS_MAX
from terraflow.ports.upstream import ModelRequest, Usage

Json = dict[str, Any]

TOOL_TOKENS_MAX = 2_000
"""Anthropic names 245 to 735 tokens for the tools that it defines."""

_encode = msgspec.json.Encoder().encode
_TIERS = {said: asked for asked, said in TIERS_ASKED.items()}


class _Attached:
    """What a request's attachments can cost."""

    __slots__ = ("inline_bytes", "tokens")

    def __init__(self) -> None:
        self.inline_bytes = 0
        self.tokens = 0


def parse(raw: bytes, values_max: int = NODES_MAX) -> ModelRequest | Refuse:
    """The neutral request of a body, or INVALID_REQUEST with what is wrong."""
    read = _read(raw, values_max, shape.MessagesBody)
    if isinstance(read, Problem):
        return invalid_request(read.field, read.rule)
    body, tools = read
    wrong = _contradiction(body)
    if wrong is not None:
        return invalid_request(wrong.field, wrong.rule)
    attached = _Attached()
    document = _counted(body, tools, attached)
    if body.stop_sequences:
        document["stop"] = body.stop_sequences
    for field in ("temperature", "top_p", "top_k"):
        value = getattr(body, field)
        if value is not None:
            document[field] = value
    if body.metadata is not None and body.metadata.user_id is not None:
        document["user"] = body.metadata.user_id
    if body.service_tier is not None:
        document["service_tier"] = _TIERS[body.service_tier]
    form = _format(body)
    return ModelRequest(
        document=document,
        stream=bool(body.stream),
        include_usage=True,
        output_tokens_max=body.max_tokens,
        choices=1,
        tool_names=_tool_names(body, tools),
        output_schema=None if form is None else form.schema,
        model=body.model,
        size_bytes=len(raw),
        inline_bytes=attached.inline_bytes,
        attachment_tokens_max=attached.tokens,
        extended=True,
    )


def count_tokens(raw: bytes, values_max: int = NODES_MAX) -> int | Refuse:
    """An estimate of a body's input tokens: four bytes a token, and for attachments their bounds."""
    read = _read(raw, values_max, shape.CountedBody)
    if isinstance(read, Problem):
        return invalid_request(read.field, read.rule)
    attached = _Attached()
    _counted(*read, attached)
    return Usage.counted(len(raw) - attached.inline_bytes, 0).input + attached.tokens


_Tools = list[shape.CustomTool | shape.NamedTool]


def _read(raw: bytes, values_max: int, kind: type[Any]) -> tuple[Any, _Tools] | Problem:
    try:
        document = parse_json(raw, nodes_max=values_max)
    except BadJson as bad:
        return Problem(field="body", rule=bad.rule)
    body = shape.check(document, kind)
    if isinstance(body, Problem):
        return body
    tools: _Tools = []
    for at, given in enumerate(body.tools or ()):
        tool = shape.check_tool(given, at)
        if isinstance(tool, Problem):
            return tool
        tools.append(tool)
    return body, tools


def _contradiction(body: shape.MessagesBody) -> Problem | None:
    thinking = body.thinking
    if isinstance(thinking, shape.ThinkingEnabled) and thinking.budget_tokens >= body.max_tokens:
        return Problem(field="thinking.budget_tokens", rule="must be less than max_tokens")
    config = body.output_config
    if body.output_format is not None and config is not None and config.format not in (None, body.output_format):
        return Problem(field="output_format", rule="must not contradict output_config.format")
    return None


def _counted(body: shape.CountedBody, tools: _Tools, attached: _Attached) -> Json:
    """The part of the document that is input."""
    messages: list[Json] = []
    if body.system:
        messages.append({"role": "system", "content": _texts(body.system)})
    for turn in body.messages:
        if isinstance(turn, shape.User):
            _user(turn, messages, attached)
        elif isinstance(turn, shape.Assistant):
            messages.append(_assistant(turn))
        else:
            messages.append({"role": "system", "content": _texts(turn.content)})
    document: Json = {"messages": messages}
    if tools:
        document["tools"] = [_tool(tool, given, attached) for tool, given in zip(tools, body.tools or (), strict=True)]
    _choose(document, body.tool_choice)
    if body.thinking is not None:
        document["thinking"] = _plain(body.thinking)
    if body.cache_control is not None:
        document["cache_control"] = _plain(body.cache_control)
    if body.output_config is not None and body.output_config.effort is not None:
        document["output_config"] = {"effort": body.output_config.effort}
    form = _format(body)
    if form is not None:
        wanted = {"name": "answer", "schema": form.schema, "strict": True}
        document["response_format"] = {"type": "json_schema", "json_schema": wanted}
    return document


def _format(body: shape.CountedBody) -> shape.JsonFormat | None:
    config = body.output_config
    return config.format if config is not None and config.format is not None else body.output_format


def _plain(value: msgspec.Struct) -> Any:
    """A struct as JSON has it, without what was not given."""
    made = msgspec.to_builtins(value)
    return {key: inner for key, inner in made.items() if inner is not None}


def _tool_names(body: shape.CountedBody, tools: _Tools) -> tuple[str, ...]:
    """Every tool that the model could use; one that is only chosen and not offered is among them."""
    names = [tool.name for tool in tools]
    if isinstance(body.tool_choice, shape.ChoiceTool) and body.tool_choice.name not in names:
        names.append(body.tool_choice.name)
    return tuple(names)


def _choose(document: Json, choice: Any) -> None:
    if choice is None:
        return
    if isinstance(choice, shape.ChoiceNone):
        document["tool_choice"] = "none"
        return
    if isinstance(choice, shape.ChoiceTool):
        document["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        document["tool_choice"] = "required" if isinstance(choice, shape.ChoiceAny) else "auto"
    if choice.disable_parallel_tool_use is not None:
        document["parallel_tool_calls"] = not choice.disable_parallel_tool_use


def _tool(tool: shape.CustomTool | shape.NamedTool, given: Json, attached: _Attached) -> Json:
    if isinstance(tool, shape.NamedTool):
        attached.tokens += TOOL_TOKENS_MAX
        return given
    function: Json = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    made = _marked({"type": "function", "function": function}, tool)
    for field in TOOL_FIELDS:
        value = getattr(tool, field)
        if value is not None:
            made[field] = value
    return made


def _marked(made: Json, block: Any) -> Json:
    if block.cache_control is not None:
        made["cache_control"] = _plain(block.cache_control)
    return made


def _texts(content: str | list[Any]) -> str | list[Json]:
    """Text blocks, by rule 3."""
    if isinstance(content, str):
        return content
    if len(content) == 1 and content[0].cache_control is None and content[0].citations is None:
        only: str = content[0].text
        return only
    return [_text(block) for block in content]


def _text(block: shape.Text) -> Json:
    made = _marked({"type": "text", "text": block.text}, block)
    if block.citations:
        made["citations"] = block.citations
    return made


def _user(turn: shape.User, messages: list[Json], attached: _Attached) -> None:
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


def _tool_result(block: shape.ToolResult, attached: _Attached) -> Json:
    content = block.content or ""
    made: Json = {"role": "tool", "tool_call_id": block.tool_use_id}
    made["content"] = content if isinstance(content, str) else _parts(content, attached)
    if block.is_error:
        made["is_error"] = True
    return _marked(made, block)


def _parts(blocks: list[Any], attached: _Attached) -> str | list[Json]:
    if len(blocks) == 1 and isinstance(blocks[0], shape.Text):
        return _texts(blocks)
    return [_part(block, attached) for block in blocks]


def _part(block: Any, attached: _Attached) -> Json:
    if isinstance(block, shape.Text):
        return _text(block)
    if isinstance(block, shape.Image):
        return _marked({"type": "image_url", "image_url": {"url": _image_url(block, attached)}}, block)
    if isinstance(block, shape.Document):
        return _document(block, attached)
    return _marked({"type": "search_result", **_without_mark(block)}, block)


def _image_url(block: shape.Image, attached: _Attached) -> str:
    attached.tokens += IMAGE_TOKENS_MAX
    source = block.source
    if isinstance(source, shape.Url):
        return source.url
    url = f"data:{source.media_type};base64,{source.data}"
    attached.inline_bytes += len(source.data)
    return url


def _document(block: shape.Document, attached: _Attached) -> Json:
    """OpenAI's `file` where it says all, else the block as it came."""
    source = block.source
    attached.tokens += FILE_TOKENS_MAX if isinstance(source, shape.Url) else IMAGE_TOKENS_MAX
    plain = block.context is None and block.citations is None
    if not plain or not isinstance(source, shape.PdfData | shape.PlainText):
        if isinstance(source, shape.Blocks) and not isinstance(source.content, str):
            attached.tokens += IMAGE_TOKENS_MAX * sum(isinstance(inner, shape.Image) for inner in source.content)
        return _marked({"type": "document", **_without_mark(block)}, block)
    data = source.data
    if isinstance(source, shape.PlainText):
        data = base64.b64encode(data.encode()).decode()
    file = {"file_data": f"data:{source.media_type};base64,{data}"}
    if block.title is not None:
        file["filename"] = block.title
    return _marked({"type": "file", "file": file}, block)


def _without_mark(block: msgspec.Struct) -> Json:
    made: Json = _dense(msgspec.to_builtins(block))
    made.pop("cache_control", None)
    return made


def _dense(value: Any) -> Any:
    """Without the fields that were not given."""
    if isinstance(value, dict):
        return {key: _dense(inner) for key, inner in value.items() if inner is not None}
    return [_dense(inner) for inner in value] if isinstance(value, list) else value


def _assistant(turn: shape.Assistant) -> Json:
    if isinstance(turn.content, str):
        return {"role": "assistant", "content": turn.content}
    thoughts: list[Json] = []
    texts: list[shape.Text] = []
    calls: list[Json] = []
    kinds: list[tuple[str, int]] = []
    for block in turn.content:
        if isinstance(block, shape.Text):
            texts.append(block)
            kinds.append((TEXT, len(block.text)))
        elif isinstance(block, shape.ToolUse):
            function = {"name": block.name, "arguments": _encode(block.input).decode()}
            calls.append(_marked({"id": block.id, "type": "function", "function": function}, block))
            kinds.append((CALL, 0))
        else:
            thoughts.append(msgspec.to_builtins(block))
            kinds.append((THINKING, 0))
    made: Json = {"role": "assistant", "content": _texts(texts) if texts else None}
    if thoughts:
        made["thinking_blocks"] = thoughts
    if calls:
        made["tool_calls"] = calls
    order = order_of(kinds)
    if order is not None:
        made["block_order"] = order
    return made
