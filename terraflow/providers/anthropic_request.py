"""A neutral request in the words of Anthropic's Messages API.

1. Every field of a request has a row in one of two tables: what is translated, and what may only have the one
   value that changes nothing. A field without a row, or with another value, is refused before anything is sent,
   and is named only if it is a word of OpenAI's; inside messages it is named by its path, without positions. What
   is inside has its rows in `anthropic_fields`.
2. System and developer messages, wherever they stand, become the system prompt, in their order.
3. Neighbouring messages of one role become one turn; the results of parallel tool calls go back in one turn, in
   front. There must be a turn, where OpenAI's API answers a system prompt alone.
4. `cache_control` stays on the part, tool or message that carried it; a message's own goes to its last block.
5. What another mouth put into extension fields goes back as it came (docs/adr/0019-extension-fields.md): documents and
   search results, `is_error`, a tool's own fields, the tools that Anthropic defines and a caller runs. Tools that
   Anthropic runs are refused: they reach out and cost where no capability says so.
6. `thinking_blocks` of an assistant's message are sent back as they came and where they stood (`core.block_order`),
   signatures and all; one without a signature is another vendor's, which the API refuses, and stays behind.
   `reasoning_content` is the readable copy of them and stays behind too.
7. A call's id that the API refuses, since another vendor gave it, is told in another form.
8. An assistant's tool arguments that are no JSON object cannot be said here: REJECTED_CONTENT, since they are
   content.

Sources: Anthropic's API reference, "Create a Message"; the types of its client library.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec

from terraflow.core.anthropic_words import TIERS_ASKED, TOOL_FIELDS
from terraflow.core.block_order import in_order, texts_of
from terraflow.core.chat_fields import named
from terraflow.ports.upstream import Call, Failure, ProviderFailure
from terraflow.providers import anthropic_fields as within
from terraflow.providers.anthropic_fields import marks_in, only, unknown_in
from terraflow.providers.anthropic_thinking import Thinking
from terraflow.providers.failures import unsupported
from terraflow.providers.tool_calls import call_id_for

Json = dict[str, Any]

_DATA_URL = re.compile(r"data:([a-z0-9.+/-]{1,64});base64,(.*)", re.DOTALL)
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_UNKNOWN_IN_MESSAGE = unknown_in("messages[]")
_UNKNOWN_IN_CALL = unknown_in("messages[].tool_calls[]")
_UNKNOWN_IN_PART = unknown_in("messages[].content[]")
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})

_TRANSLATED = frozenset({
    "messages", "tools", "tool_choice", "parallel_tool_calls", "stop", "temperature", "top_p", "response_format",
    "reasoning_effort", "user", "safety_identifier", "service_tier", "cache_control", "thinking", "top_k",
    "output_config",
})  # fmt: skip

# fmt: off
_CHANGES_NOTHING: dict[str, tuple[Any, ...]] = {
    "n":                 (1,),
    "store":             (False,),
    "logprobs":          (False,),
    "top_logprobs":      (0,),
    "frequency_penalty": (0,),
    "presence_penalty":  (0,),
    "logit_bias":        ({},),
    "modalities":        (["text"],),
    "verbosity":         ("medium",),
    "metadata":          ({},),
    "functions":         ([],),
    "function_call":     ("none",),
}
_CALLERS_TOOLS = re.compile(r"(?:bash|text_editor|memory)_[0-9]{8}")
_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
# fmt: on


def translate_request(model: str, thinking: Thinking, call: Call, *, stream: bool) -> Json:
    """The Messages body of a call; `stream` is how the vendor is to answer.

    Raises ProviderFailure: UNSUPPORTED_FIELD, REJECTED_CONTENT.
    """
    document = {key: value for key, value in call.request.document.items() if value is not None}
    _refuse_unknown(document)
    system, turns = _translate_messages(document["messages"])
    if not turns:
        raise unsupported("messages")
    body: Json = {"model": model, "max_tokens": call.output_tokens_max, "messages": turns}
    if system:
        body["system"] = system
    if document.get("tools"):
        body["tools"] = [_tool(tool) for tool in document["tools"]]
    choice = _tool_choice(document)
    if choice is not None:
        body["tool_choice"] = choice
    stop = document.get("stop")
    if stop:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    for field in ("temperature", "top_p", "top_k", "cache_control"):
        if field in document:
            body[field] = _mark(document[field])
    if document.get("temperature", 0) > 1:
        raise unsupported("temperature")
    user = _user(document)
    if user is not None:
        body["metadata"] = {"user_id": user}
    if "service_tier" in document:
        if document["service_tier"] not in TIERS_ASKED:
            raise unsupported("service_tier")
        body["service_tier"] = TIERS_ASKED[document["service_tier"]]
    output = _output_format(document)
    if output is not None:
        body["output_config"] = {"format": output}
    thinking.apply(body, document, call)
    if stream:
        body["stream"] = True
    return body


def _refuse_unknown(document: Json) -> None:
    refused = [
        field
        for field, value in document.items()
        if field not in _TRANSLATED and not any(_same(value, allowed) for allowed in _CHANGES_NOTHING.get(field, ()))
    ]
    if refused:
        raise unsupported(*dict.fromkeys(map(named, refused)))


def _same(value: Any, allowed: Any) -> bool:
    """Equal, and not by Python's `False == 0`."""
    return bool(value == allowed) and isinstance(value, bool) == isinstance(allowed, bool)


def _user(document: Json) -> str | None:
    user, identifier = document.get("user"), document.get("safety_identifier")
    if user is not None and identifier is not None and user != identifier:
        raise unsupported("user")
    return identifier if user is None else user


def _output_format(document: Json) -> Json | None:
    asked = document.get("response_format", {"type": "text"})
    if asked["type"] == "text":
        return None
    schema = asked.get("json_schema", {}).get("schema") if asked["type"] == "json_schema" else None
    if schema is None:
        raise unsupported("response_format")
    only(asked, within.FORMAT, "response_format")
    only(asked["json_schema"], within.SCHEMA, "response_format")
    described = asked["json_schema"].get("description")
    if described is not None and "description" not in schema:
        schema = {**schema, "description": described}
    return {"type": "json_schema", "schema": schema}


def _tool(tool: Json) -> Json:
    kind = tool.get("type") or ""
    if _CALLERS_TOOLS.fullmatch(kind):
        return _cached(tool, tool)
    if kind != "function":
        raise unsupported("tools")
    function = tool["function"]
    only(tool, within.TOOL, "tools")
    only(function, within.FUNCTION, "tools")
    made: Json = {
        "name": function["name"],
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }
    for field in ("description", "strict"):
        if function.get(field) is not None:
            made[field] = function[field]
    made |= {field: tool[field] for field in TOOL_FIELDS if field in tool}
    return _cached(made, tool if "cache_control" in tool else function)


def _tool_choice(document: Json) -> Json | None:
    asked = document.get("tool_choice")
    parallel = document.get("parallel_tool_calls", True)
    if not document.get("tools"):
        if asked not in (None, "none", "auto"):
            raise unsupported("tool_choice")
        return None
    if asked is None:
        if parallel:
            return None
        asked = "auto"
    if isinstance(asked, str):
        if asked not in _TOOL_CHOICES:
            raise unsupported("tool_choice")
        choice: Json = {"type": _TOOL_CHOICES[asked]}
    elif asked.get("type") == "function":
        only(asked, within.CHOICE, "tool_choice")
        only(asked["function"], within.CHOSEN, "tool_choice")
        choice = {"type": "tool", "name": asked["function"]["name"]}
    else:
        raise unsupported("tool_choice")
    if not parallel and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return choice


def _translate_messages(messages: list[Json]) -> tuple[list[Json], list[Json]]:
    """The system prompt's blocks, and the turns."""
    system: list[Json] = []
    turns: list[Json] = []
    for message in messages:
        # The result of a tool names its tool by the call's id.
        for field in ("function_call",) if message["role"] == "tool" else ("name", "function_call"):
            if message.get(field) is not None:
                raise unsupported(f"messages[].{field}")
        only(message, within.MESSAGE, _UNKNOWN_IN_MESSAGE)
        role = message["role"]
        if role in ("system", "developer"):
            system += _marked(message, _parts(message["content"]))
            continue
        if role == "user":
            blocks = _marked(message, _parts(message["content"]))
        elif role == "assistant":
            blocks = _marked(message, _assistant(message))
        elif role == "tool":
            role, blocks = "user", [_tool_result(message)]
        else:
            raise unsupported("messages[].role")
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return system, turns


def _marked(message: Json, blocks: list[Json]) -> list[Json]:
    """The blocks of a message; the message's own cache mark on the last of them."""
    if blocks and "cache_control" in message:
        blocks[-1] = {**blocks[-1], "cache_control": _mark(message["cache_control"])}
    return blocks


def _cached(made: Json, source: Json) -> Json:
    if source.get("cache_control") is not None:
        made["cache_control"] = _mark(source["cache_control"])
    return made


def _mark(mark: Any) -> Any:
    """A cache mark whose writes are billed at the capability's price for them: longer lives have another."""
    if isinstance(mark, dict) and mark.get("ttl") not in (None, "5m"):
        raise unsupported("cache_control")
    return mark


def _parts(content: Any) -> list[Json]:
    """The blocks of a content: text that is empty says nothing, and the API refuses it."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_part(part) for part in content or () if part.get("text") != ""]


def _part(part: Json) -> Json:
    if part.get("prompt_cache_breakpoint") is not None:
        part = {**part, "cache_control": {"type": "ephemeral"}}
    kind = part["type"]
    if kind in ("document", "search_result"):
        for mark in marks_in(part):
            _mark(mark)
        return part
    if kind in within.PARTS:
        only(part, within.PARTS[kind], _UNKNOWN_IN_PART)
    if kind == "text":
        made = _cached({"type": "text", "text": part["text"]}, part)
        return made | {"citations": part["citations"]} if part.get("citations") else made
    if kind == "refusal":
        return _cached({"type": "text", "text": part["refusal"]}, part)
    if kind == "image_url":
        return _cached({"type": "image", "source": _image_source(part["image_url"])}, part)
    if kind == "file":
        return _cached(_document(part["file"]), part)
    raise unsupported("messages[].content[].type")


def asks_for_citations(document: Json) -> bool:
    """Whether a document or search result of the request may be cited."""
    return any(
        (part.get("citations") or {}).get("enabled")
        for message in document["messages"]
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part["type"] in ("document", "search_result")
    )


def _image_source(image: Json) -> Json:
    only(image, within.IMAGE, unknown_in("messages[].content[].image_url"))
    url = image["url"]
    if image.get("detail") not in (None, "auto"):
        raise unsupported("messages[].content[].image_url.detail")
    if url.startswith("https://"):
        return {"type": "url", "url": url}
    found = _DATA_URL.fullmatch(url)
    if found is None or found[1] not in _IMAGES:
        raise unsupported("messages[].content[].image_url.url")
    return {"type": "base64", "media_type": found[1], "data": found[2]}


def _document(file: Json) -> Json:
    only(file, within.FILE, "messages[].content[].file")
    found = _DATA_URL.fullmatch(file.get("file_data") or "")
    if found is None:
        raise unsupported("messages[].content[].file")
    if found[1] == "application/pdf":
        source = {"type": "base64", "media_type": "application/pdf", "data": found[2]}
    elif found[1] == "text/plain":
        source = {"type": "text", "media_type": "text/plain", "data": _text_of(found[2])}
    else:
        raise unsupported("messages[].content[].file.file_data")
    made: Json = {"type": "document", "source": source}
    if file.get("filename"):
        made["title"] = file["filename"]
    return made


def _text_of(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise ProviderFailure(Failure.REJECTED_CONTENT, reached=False)


def _assistant(message: Json) -> list[Json]:
    if message.get("audio") is not None:
        raise unsupported("messages[].audio")
    order, content = message.get("block_order"), message.get("content")
    thoughts = [{k: v for k, v in block.items() if k != "index"} for block in message.get("thinking_blocks") or ()]
    if isinstance(content, str):
        content = [{"type": "text", "text": text} for text in texts_of(order, content)]
    texts = _parts(content)
    if message.get("refusal"):
        texts.append({"type": "text", "text": message["refusal"]})
    calls: list[Json] = []
    for called in message.get("tool_calls") or ():
        if called.get("type") != "function":
            raise unsupported("messages[].tool_calls[].type")
        function = called["function"]
        only(called, within.CALL, _UNKNOWN_IN_CALL)
        only(function, within.CALLED, _UNKNOWN_IN_CALL)
        call_id, arguments = call_id_for(called["id"], _CALL_ID), _arguments(function["arguments"])
        calls.append(_cached({"type": "tool_use", "id": call_id, "name": function["name"], "input": arguments}, called))
    return [block for block in in_order(order, thoughts, texts, calls) if not _unsigned(block)]


def _unsigned(block: Json) -> bool:
    return block["type"] == "thinking" and not block.get("signature")


def _arguments(text: str) -> Json:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=Json)
    except (msgspec.DecodeError, RecursionError):
        pass
    raise ProviderFailure(Failure.REJECTED_CONTENT, reached=False)


def _tool_result(message: Json) -> Json:
    made: Json = {"type": "tool_result", "tool_use_id": call_id_for(message["tool_call_id"], _CALL_ID)}
    content = message["content"]
    made["content"] = content if isinstance(content, str) else _parts(content)
    if message.get("is_error"):
        made["is_error"] = True
    return _cached(made, message)
