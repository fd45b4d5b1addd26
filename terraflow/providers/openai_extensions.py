"""The extension fields of a neutral request (docs/adr/0019-extension-fields.md) in OpenAI's words, or refused.

1. Cache marks stay behind: OpenAI and the engines cache every prefix by themselves, without being told.
2. Thinking is an effort here: that of `output_config`, else the greatest whose usual budget keeps to the budget asked
   for. Thinking that is adaptive or off, between tools too, is what a request without either field gets. A model's
   earlier thoughts are told to engines, as their readable text; their signatures mean nothing to them. A turn of
   nothing but thoughts is none to OpenAI.
3. The result of a tool that failed says so in its text, since it has no mark for it.
4. OpenAI takes nothing but text as a tool's result: images and files of one stand before what the user says next,
   behind the name of the call; engines take them where they are.
5. OpenAI refuses a tool whose schema is an object without `properties`, as tools without arguments have it, and the id
   of a user that is longer than its own may be: that is told as its digest.
6. A tool whose name is longer than OpenAI's may be is told under a shorter one, wherever it is named; `heard_names`
   turns those of an answer back.
7. Whatever else is here (a document or search result as such, citations, tools of another vendor's, and of a tool every
   field but those below) is refused as UNSUPPORTED_FIELD before anything is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from terraflow.contracts.capability import Dialect
from terraflow.providers.anthropic_thinking import EFFORTS
from terraflow.providers.failures import unsupported

Json = dict[str, Any]

FAILED = "Error: "
"""What stands before the result of a tool that failed."""
ATTACHED = "Result of {call}:"
"""What stands before the images and files of a tool's result."""
BELOW = "(attached below)"
"""The result of a tool that gave nothing else."""

USER_MAX = 64
NAME_MAX = 64
"""Characters that OpenAI takes."""

_HIGHEST = "xhigh"
_PARTS = frozenset({"text", "image_url", "file"})
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "cache_control": (),
    "eager_input_streaming": (),
    "defer_loading": (False,),
    "allowed_callers": (["direct"],),
    "input_examples": ([],),
}
"""Fields of a tool that stay behind: with any value, or with one of these."""


def without_extensions(document: Json, dialect: Dialect) -> Json:
    """The document as OpenAI's shape has it. Raises ProviderFailure: UNSUPPORTED_FIELD."""
    made = dict(document)
    made.pop("cache_control", None)
    effort = _effort(made.pop("thinking", None), made.pop("output_config", None))
    if effort is not None:
        made["reasoning_effort"] = effort
    if "top_k" in made and dialect is not Dialect.SELF_HOSTED:
        raise unsupported("top_k")
    messages = [_message(message, dialect) for message in document["messages"]]
    if dialect is Dialect.CURRENT:
        messages = [message for message in messages if _says_something(message)]
    made["messages"] = _attached_apart(messages) if dialect is Dialect.CURRENT else messages
    if "tools" in made:
        made["tools"] = [_tool(tool, dialect) for tool in made["tools"]]
    if dialect is Dialect.CURRENT and any(map(_is_long, _functions(made))):
        _rename(made)
    if dialect is Dialect.CURRENT and len(made.get("user") or "") > USER_MAX:
        made["user"] = hashlib.sha256(made["user"].encode()).hexdigest()
    return made


def _effort(thinking: Json | None, config: Json | None) -> str | None:
    if config is not None and config.get("effort") is not None:
        asked: str = config["effort"]
        return _HIGHEST if asked == "max" else asked
    if thinking is None or thinking["type"] != "enabled":
        return None
    kept = [effort.asked for effort in EFFORTS if effort.budget_tokens <= thinking["budget_tokens"]]
    return _HIGHEST if kept[-1] == "max" else kept[-1]


def heard_names(document: Json) -> dict[str, str]:
    """The offered tools' own names by those that OpenAI was told in their place."""
    return {_told_name(f["name"]): f["name"] for f in _functions({"tools": document.get("tools")}) if _is_long(f)}


def _told_name(name: str) -> str:
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: NAME_MAX - len(digest) - 1]}_{digest}"


def _is_long(function: Json) -> bool:
    return len(function["name"]) > NAME_MAX


def _functions(document: Json) -> Iterator[Json]:
    """Everything in a document that names a function."""
    for tool in document.get("tools") or ():
        if tool["type"] == "function":
            yield tool["function"]
    if isinstance(document.get("tool_choice"), dict):
        yield document["tool_choice"]["function"]
    for message in document.get("messages") or ():
        for call in message.get("tool_calls") or ():
            yield call["function"]


def _rename(made: Json) -> None:
    """Tell long names in a document whose lists are its own already."""

    def told(named: Json) -> Json:
        return {**named, "function": {**named["function"], "name": _told_name(named["function"]["name"])}}

    if "tools" in made:
        made["tools"] = [told(tool) for tool in made["tools"]]
    if isinstance(made.get("tool_choice"), dict):
        made["tool_choice"] = told(made["tool_choice"])
    made["messages"] = [
        {**message, "tool_calls": [told(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in made["messages"]
    ]


def _tool(tool: Json, dialect: Dialect) -> Json:
    if tool["type"] != "function":
        raise unsupported("tools")
    for field in tool.keys() - {"type", "function"}:
        allowed = _NEUTRAL.get(field)
        if allowed is None or (allowed and tool[field] not in allowed):
            raise unsupported("tools")
    function = tool["function"]
    schema = function.get("parameters") or {}
    if dialect is Dialect.CURRENT and schema.get("type") == "object" and "properties" not in schema:
        function = {**function, "parameters": {**schema, "properties": {}}}
    return {"type": "function", "function": function}


def _message(message: Json, dialect: Dialect) -> Json:
    made = {key: value for key, value in message.items() if key not in ("cache_control", "is_error", "block_order")}
    content = message.get("content")
    if isinstance(content, list):
        made["content"] = content = [_part(part) for part in content]
    if message.get("is_error"):
        made["content"] = FAILED + content if isinstance(content, str) else [_failed(), *(content or ())]
    thoughts = made.pop("thinking_blocks", None)
    if thoughts is not None and dialect is Dialect.SELF_HOSTED:
        made["reasoning_content"] = "".join(block.get("thinking", "") for block in thoughts)
    if "tool_calls" in made:
        made["tool_calls"] = [_unmarked(call) for call in made["tool_calls"]]
    return made


def _says_something(message: Json) -> bool:
    return message.get("content") is not None or bool(message.get("tool_calls"))


def _attached_apart(messages: list[Json]) -> list[Json]:
    """Rule 4. The results of one turn's calls stand together, so what they hold waits until the last of them."""
    made: list[Json] = []
    held: list[Json] = []
    for message in messages:
        content = message.get("content")
        if message["role"] == "tool" and isinstance(content, list):
            texts = [part for part in content if part["type"] == "text"]
            if len(texts) < len(content):
                held.append({"type": "text", "text": ATTACHED.format(call=message["tool_call_id"])})
                held += [part for part in content if part["type"] != "text"]
                message = {**message, "content": texts or BELOW}
        elif held and message["role"] != "tool":
            if message["role"] == "user":
                said = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
                message = {**message, "content": [*held, *said]}
            else:
                made.append({"role": "user", "content": held})
            held = []
        made.append(message)
    return [*made, {"role": "user", "content": held}] if held else made


def _failed() -> Json:
    return {"type": "text", "text": FAILED}


def _part(part: Json) -> Json:
    if part["type"] not in _PARTS or "citations" in part:
        raise unsupported(f"messages[].content[].{'type' if part['type'] not in _PARTS else 'citations'}")
    return _unmarked(part)


def _unmarked(value: Json) -> Json:
    return {key: inner for key, inner in value.items() if key != "cache_control"}
