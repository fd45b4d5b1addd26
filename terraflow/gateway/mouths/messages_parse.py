"""A Messages body in neutral form.

1. What OpenAI's chat shape has a place for goes there; the rest goes into the extension fields of
   docs/adr/0019-extension-fields.md, one name each. Nothing is left out: what has neither place is not in the shape.
2. Its turns are those of `messages_turns`.
3. A tool that the vendor defines brings instructions of the vendor's, at most `TOOL_TOKENS_MAX`.
"""

from __future__ import annotations

from typing import Any

from terraflow.core.anthropic_words import TIERS_ASKED, TOOL_FIELDS
from terraflow.core.outcome import Problem, Refuse, invalid_request
from terraflow.core.strict_json import NODES_MAX, BadJson, parse_json
from terraflow.gateway.mouths import messages_shape as shape
from terraflow.gateway.mouths.messages_turns import Attached, assistant, marked, plain, texts, user
from terraflow.ports.upstream import ModelRequest, input_estimate

Json = dict[str, Any]

TOOL_TOKENS_MAX = 2_000
"""Anthropic names 245 to 735 tokens for the tools that it defines."""

_TIERS = {said: asked for asked, said in TIERS_ASKED.items()}


def parse(raw: bytes, values_max: int = NODES_MAX) -> ModelRequest | Refuse:
    """The neutral request of a body, or INVALID_REQUEST with what is wrong."""
    read = _read(raw, values_max, shape.MessagesBody)
    if isinstance(read, Problem):
        return invalid_request(read.field, read.rule)
    body, tools = read
    wrong = _contradiction(body)
    if wrong is not None:
        return invalid_request(wrong.field, wrong.rule)
    attached = Attached()
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
    """The estimate of a body's input tokens, the one by which a request is counted whose vendor names no usage."""
    read = _read(raw, values_max, shape.CountedBody)
    if isinstance(read, Problem):
        return invalid_request(read.field, read.rule)
    attached = Attached()
    _counted(*read, attached)
    return input_estimate(len(raw), attached.inline_bytes, attached.tokens)


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


def _counted(body: shape.CountedBody, tools: _Tools, attached: Attached) -> Json:
    """The part of the document that is input."""
    messages: list[Json] = []
    if body.system:
        messages.append({"role": "system", "content": texts(body.system)})
    for turn in body.messages:
        if isinstance(turn, shape.User):
            user(turn, messages, attached)
        elif isinstance(turn, shape.Assistant):
            messages.append(assistant(turn))
        else:
            messages.append({"role": "system", "content": texts(turn.content)})
    document: Json = {"messages": messages}
    if tools:
        document["tools"] = [_tool(tool, given, attached) for tool, given in zip(tools, body.tools or (), strict=True)]
    _choose(document, body.tool_choice)
    if body.thinking is not None:
        document["thinking"] = plain(body.thinking)
    if body.cache_control is not None:
        document["cache_control"] = plain(body.cache_control)
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


def _tool(tool: shape.CustomTool | shape.NamedTool, given: Json, attached: Attached) -> Json:
    if isinstance(tool, shape.NamedTool):
        attached.tokens += TOOL_TOKENS_MAX
        return given
    function: Json = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    made = marked({"type": "function", "function": function}, tool)
    for field in TOOL_FIELDS:
        value = getattr(tool, field)
        if value is not None:
            made[field] = value
    return made
