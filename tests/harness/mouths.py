"""The API shapes of the plane, as those who call it see them: one scenario runs through each.

1. A scenario is written as a chat body; a shape says the same in its own words, and fails where it has none.
2. Every error and every whole answer of a shape is checked in all its parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

Json = dict[str, Any]

# fmt: off
OPENAI_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "unprocessable_entity_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "invalid_request_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
# fmt: on


class Mouth(NamedTuple):
    """One shape. `asks` gives a chat body in its words; `error` checks an error's body, `answer` a whole answer's and
    gives its input and output tokens; `id_header` is where its clients look for the request's id."""

    name: str
    path: str
    id_header: str
    asks: Callable[[Json], Json]
    error: Callable[[Json, int, str, str | None], None]
    answer: Callable[[Json, str, str], tuple[int, int]]


def _chat_error(body: Json, status: int, message: str, param: str | None) -> None:
    assert set(body) == {"error", "terraflow"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == OPENAI_ERRORS[status]
    assert error["message"].startswith(message)
    assert error["param"] == param


def _chat_answer(body: Json, request_id: str, capability: str) -> tuple[int, int]:
    assert body["object"] == "chat.completion"
    assert body["id"] == "chatcmpl-" + request_id.removeprefix("req_")
    assert body["model"] == capability
    return body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]


def _messages_error(body: Json, status: int, message: str, param: str | None) -> None:
    assert set(body) == {"type", "error", "request_id", "terraflow"}
    assert body["type"] == "error"
    error = body["error"]
    assert set(error) == {"type", "message", "code"} | ({"details"} if param == "thread" else set())
    assert error["type"] == ANTHROPIC_ERRORS[status]
    assert error["message"].startswith(message)
    assert body["request_id"] == body["terraflow"]["request_id"]


def _messages_answer(body: Json, request_id: str, capability: str) -> tuple[int, int]:
    assert (body["type"], body["role"]) == ("message", "assistant")
    assert body["id"] == "msg_" + request_id.removeprefix("req_")
    assert body["model"] == capability
    usage = body["usage"]
    read = usage["input_tokens"] + usage["cache_creation_input_tokens"] + usage["cache_read_input_tokens"]
    return read, usage["output_tokens"]


_SAME = frozenset({"model", "stream", "temperature", "top_p", "top_k"})


def _as_messages(body: Json) -> Json:
    """A chat body as a Messages body. Raises KeyError for a field that Anthropic's shape does not have."""
    made: Json = {"max_tokens": 100, "messages": [_turn(message) for message in body["messages"]]}
    for field, value in body.items():
        if field == "messages":
            continue
        if field in _SAME:
            made[field] = value
        else:
            made |= _FIELDS[field](value)
    return made


def _turn(message: Json) -> Json:
    content = message["content"]
    if message["role"] == "tool":
        block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content}
        return {"role": "user", "content": [block]}
    blocks = content if isinstance(content, str) else [_block(part) for part in content or ()]
    for call in message.get("tool_calls", ()):
        function = call["function"]
        use = {"id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}
        blocks = [*blocks, {"type": "tool_use"} | use]
    return {"role": message["role"], "content": blocks}


def _block(part: Json) -> Json:
    if part["type"] == "text":
        return part
    kind, _, data = part["image_url"]["url"].removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _tools(tools: list[Json]) -> Json:
    made = []
    for tool in tools:
        function = tool["function"]
        schema = function.get("parameters", {"type": "object"})
        named = {key: value for key, value in function.items() if key != "parameters"}
        made.append(named | {"input_schema": schema})
    return {"tools": made}


def _format(form: Json) -> Json:
    return {"output_config": {"format": {"type": "json_schema", "schema": form["json_schema"]["schema"]}}}


_FIELDS: dict[str, Callable[[Any], Json]] = {
    "max_tokens": lambda most: {"max_tokens": most},
    "max_completion_tokens": lambda most: {"max_tokens": most},
    "tools": _tools,
    "response_format": _format,
    "user": lambda user: {"metadata": {"user_id": user}},
    "stop": lambda stop: {"stop_sequences": stop},
}


_NAMED = {
    "model": "capability",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "output_schema",
}
_PLAIN = frozenset(("messages", "tools", "tool_choice", "temperature", "top_p", "stop", "seed", "reasoning_effort"))


def _as_invocation(body: Json) -> Json:
    """A chat body as an invocation. Raises KeyError for what it does not have, streams among them."""
    given = {field: value for field, value in body.items() if (field, value) != ("stream", False)}
    made = {field if field in _PLAIN else _NAMED[field]: value for field, value in given.items()}
    if "output_schema" in made:
        made["output_schema"] = made["output_schema"]["json_schema"]["schema"]
    return made


def _invocation_answer(body: Json, _request_id: str, capability: str) -> tuple[int, int]:
    assert set(body) - {"tool_calls", "refusal"} == {"output", "finish_reason", "usage", "terraflow"}
    assert body["terraflow"]["capability"] == capability
    return body["usage"]["input_tokens"], body["usage"]["output_tokens"]


CHAT = Mouth("chat", "/chat/completions", "x-request-id", lambda body: body, _chat_error, _chat_answer)
MESSAGES = Mouth("messages", "/messages", "request-id", _as_messages, _messages_error, _messages_answer)
INVOCATIONS = Mouth("invocations", "/invocations", "x-request-id", _as_invocation, _chat_error, _invocation_answer)
VENDORS = (CHAT, MESSAGES)
"""Shapes that stream, and whose `model` may be any name."""
MOUTHS = (*VENDORS, INVOCATIONS)


def mouth_of(path: str) -> Mouth:
    """The shape in which a path answers; reads have OpenAI's."""
    return next((mouth for mouth in MOUTHS if path.startswith(f"/v1{mouth.path}")), CHAT)
