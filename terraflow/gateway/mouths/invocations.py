"""`POST /v1/invocations`: the plane's own shape, for callers that come without a vendor's client.

1. The body says everything that others say in headers: workload, declared class and types, deadline, run; and pins a
   capability by name. Nothing but what stands in `Body` is taken.
2. Messages and tools are OpenAI's, and go to every provider as chat does.
3. An answer is whole, with its decision: an invocation is never streamed.
4. `output` is the answer's text; where the caller asked for a schema and the text is JSON, the value that it is. What
   is no JSON Schema that can be checked is refused, whatever the contract has checked.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from terraflow.core.outcome import Problem, Refuse, invalid_request
from terraflow.core.reasons import ModelApi
from terraflow.core.strict_json import NODES_MAX, BadJson, parse_json
from terraflow.core.types import DATA_CLASSES, SENSITIVE_TYPES
from terraflow.gateway.declaring import DEADLINE_MS_MAX, RUN, RUN_RULE, WORKLOAD, WORKLOAD_RULE, run_budget
from terraflow.gateway.exchange import Closed, Declared
from terraflow.gateway.mouths import chat_shape
from terraflow.gateway.mouths.attachments import attachments_of
from terraflow.gateway.mouths.errors import openai_error, terraflow_object
from terraflow.gateway.mouths.mouth import Declaring, Mouth
from terraflow.gateway.mouths.openai_chat import CHAT, tool_names
from terraflow.ports.upstream import Usage

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

SHARED = ("messages", "tools", "tool_choice", "temperature", "top_p", "stop", "seed", "reasoning_effort")
"""Fields that chat has under the same name."""


class RunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run that the request is part of; `budget_usd` is decimal dollars, as text."""

    id: str
    budget_usd: str | None = None


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An invocation. Exactly one of `input`, a user's only message, and `messages`."""

    input: Annotated[str, Meta(min_length=1)] | None = None
    messages: list[Any] | None = None
    workload: str | None = None
    capability: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    data_class: Any = None
    sensitive_types: Any = None
    output_schema: dict[str, Any] | None = None
    deadline_ms: Any = None
    run: RunBody | None = None
    max_output_tokens: chat_shape.Count | None = None
    tools: Any = None
    tool_choice: Any = None
    temperature: Any = None
    top_p: Any = None
    stop: Any = None
    seed: Any = None
    reasoning_effort: Any = None


def parse(raw: bytes, values_max: int = NODES_MAX) -> Declaring | Refuse:
    """The neutral request of a body and what it declares, or INVALID_REQUEST, INVALID_DATA_CLASS, INVALID_DEADLINE or
    INVALID_SENSITIVE_TYPE."""
    try:
        body = msgspec.convert(parse_json(raw, nodes_max=values_max), Body, strict=True)
    except BadJson as bad:
        return invalid_request("body", bad.rule)
    except msgspec.ValidationError as error:
        problem = chat_shape.problem_of(str(error), Body)
        return invalid_request(problem.field, problem.rule)
    if (body.input is None) == (body.messages is None):
        return invalid_request("input", "must stand in place of messages, or messages in its place")
    declared = _declared(body)
    if isinstance(declared, Refuse):
        return declared
    document = _document(body)
    chat = chat_shape.check(document)
    if isinstance(chat, Problem):
        return invalid_request(chat.field, chat.rule)
    attached = attachments_of(chat)
    return Declaring(
        document=document,
        stream=False,
        include_usage=True,
        output_tokens_max=body.max_output_tokens,
        choices=1,
        tool_names=tool_names(chat),
        output_schema=body.output_schema,
        checkable_schema=True,
        model=None,
        size_bytes=len(raw),
        inline_bytes=attached.inline_bytes,
        attachment_tokens_max=attached.tokens_max,
        audio=attached.audio,
        declared=declared,
    )


def _document(body: Body) -> dict[str, Any]:
    """The chat body that says the same."""
    given = {field: value for field in SHARED if (value := getattr(body, field)) is not None}
    if body.input is not None:
        given["messages"] = [{"role": "user", "content": body.input}]
    if body.output_schema is not None:
        form = {"name": "output", "schema": body.output_schema}
        given["response_format"] = {"type": "json_schema", "json_schema": form}
    return given


def _declared(body: Body) -> Declared | Refuse:
    if body.workload is not None and WORKLOAD.fullmatch(body.workload) is None:
        return invalid_request("workload", WORKLOAD_RULE)
    named, types, deadline = body.data_class, body.sensitive_types, body.deadline_ms
    data_class = DATA_CLASSES.get(named) if isinstance(named, str) else None
    if named is not None and data_class is None:
        return Refuse(reason=ModelApi.INVALID_DATA_CLASS)
    if deadline is not None and not (type(deadline) is int and 0 < deadline <= DEADLINE_MS_MAX):
        return Refuse(reason=ModelApi.INVALID_DEADLINE)
    if types is not None and not (isinstance(types, list) and all(_is_type(word) for word in types)):
        return Refuse(reason=ModelApi.INVALID_SENSITIVE_TYPE)
    run = body.run
    if run is not None and RUN.fullmatch(run.id) is None:
        return invalid_request("run.id", RUN_RULE)
    budget = None if run is None or run.budget_usd is None else run_budget(run.budget_usd)
    if isinstance(budget, str):
        return invalid_request("run.budget_usd", budget)
    return Declared(
        workload=body.workload,
        data_class=data_class,
        sensitive_types=frozenset(SENSITIVE_TYPES[word] for word in types or ()),
        deadline_ms=deadline,
        run_id=None if run is None else run.id,
        run_budget=budget,
        capability=body.capability,
    )


def _is_type(word: Any) -> bool:
    return isinstance(word, str) and word in SENSITIVE_TYPES


def usage_object(usage: Usage) -> dict[str, int]:
    """Usage in the plane's words: totals, and what parts of them were."""
    return {
        "input_tokens": usage.input_total,
        "cached_input_tokens": usage.cached_input,
        "cache_write_tokens": usage.cache_write,
        "output_tokens": usage.output_total,
        "reasoning_tokens": usage.reasoning,
    }


def render(closed: Closed, _created: int) -> bytes:
    """The body of a delivered answer: `tool_calls` and `refusal` stand in it when the model gave any."""
    answer = closed.answer
    assert answer is not None
    choice = answer.choices[0]
    message = choice["message"]
    body = {
        "output": _output(message.get("content"), structured=closed.structured),
        "finish_reason": choice["finish_reason"],
        "usage": usage_object(answer.usage),
        "terraflow": terraflow_object(closed),
    }
    for more in ("tool_calls", "refusal"):
        if message.get(more):
            body[more] = message[more]
    return _encode(body)


def _output(content: Any, *, structured: bool) -> Any:
    if not structured or not isinstance(content, str):
        return content
    try:
        _decode(content)
    except (msgspec.DecodeError, RecursionError):
        return content
    return msgspec.Raw(content.encode())


INVOCATIONS = Mouth(
    name="invocations",
    request_id_header=b"x-request-id",
    parse=parse,
    render=render,
    # Rule 3: what follows of a stream's is never called.
    writer=CHAT.writer,
    collected=CHAT.collected,
    error=openai_error,
    error_event=CHAT.error_event,
)
