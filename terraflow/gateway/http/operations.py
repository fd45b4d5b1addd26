"""What `openapi` says of each route of `/v1`; a row of ROUTES (`routes`) names its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from terraflow.core.reasons import Governed, ModelApi
from terraflow.gateway.batches.item import ENDPOINTS
from terraflow.gateway.http import batches, shapes

Json = dict[str, Any]
Code = Governed | ModelApi


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route.

    `body` names the schema of a JSON body, `bodies` are those of other types; `answer` None is JSON lines. `errors` are
    the codes beside those of every route; of a `governed` route all governed ones. `example` is of the body, `answered`
    of the answer. `accepted` says that it may answer 202, too, `declares` that the headers which declare something are
    read, `either` that it is spoken to by either vendor's clients, each in its own shape.
    """

    summary: str
    answer: type[msgspec.Struct] | None
    body: str | None = None
    bodies: Mapping[str, Json] = {}
    query: Mapping[str, Json] = {}
    errors: Sequence[Code] = ()
    governed: bool = False
    streams: bool = False
    accepted: bool = False
    declares: bool = False
    either: bool = False
    example: Any = None
    answered: Any = None


_DECLARED = (ModelApi.INVALID_DATA_CLASS, ModelApi.INVALID_DEADLINE, ModelApi.INVALID_SENSITIVE_TYPE)
_BUNDLE = (Governed.BUNDLE_INVALID, Governed.BUNDLE_EXPIRED)
_FORM: Json = {
    "type": "object",
    "required": ["purpose", "file"],
    "properties": {
        "purpose": {"enum": ["batch"]},
        "file": {"type": "string", "contentMediaType": "application/jsonl"},
        "expires_after[anchor]": {"enum": ["created_at"]},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": batches.EXPIRY_MIN_S,
            "maximum": batches.EXPIRY_MAX_S,
        },
    },
    "additionalProperties": False,
}
_BATCH: Json = {
    "type": "object",
    "required": ["input_file_id", "endpoint"],
    "properties": {
        "input_file_id": {"type": "string"},
        "endpoint": {"enum": list(ENDPOINTS)},
        "completion_window": {"type": "string", "pattern": f"^{batches.WINDOW.pattern}$", "default": "24h"},
        "metadata": {
            "anyOf": [
                {
                    "type": "object",
                    "maxProperties": batches.METADATA_PAIRS,
                    "propertyNames": {"maxLength": batches.METADATA_NAME},
                    "additionalProperties": {"type": "string", "maxLength": batches.METADATA_VALUE},
                },
                {"type": "null"},
            ]
        },
    },
    "additionalProperties": False,
}
_LINES: Json = {"type": "string", "description": "One request a line: custom_id, method, url, body."}
_HELLO = [{"role": "user", "content": "How many moons has Mars?"}]
_INVOCATION = {
    "workload": "starter-assistant",
    "input": "How many moons has Mars?",
    "data_class": "internal",
    "output_schema": {"type": "object", "properties": {"moons": {"type": "integer"}}, "required": ["moons"]},
    "deadline_ms": 20_000,
    "run": {"id": "nightly:7", "budget_usd": "2.50"},
}
_INVOKED = {
    "output": {"moons": 0},
    "finish_reason": "stop",
    "usage": {
        "input_tokens": 76,
        "cached_input_tokens": 0,
        "cache_write_tokens": 0,
        "output_tokens": 3,
        "reasoning_tokens": 0,
    },
    "terraflow": {
        "request_id": "req_53e3807ab7ec5155fc7d9f3a9d5641bb",
        "reason_code": Governed.PERMITTED,
        "reasons": [Governed.PERMITTED],
        "detail": "",
        "details": {},
        "capability": "sim-medium",
        "cost_usd": "0.000017",
    },
}

CHAT_COMPLETION = Operation(
    summary="A governed chat completion, in OpenAI's shape",
    body="Chat.ChatBody",
    answer=shapes.ChatAnswer,
    errors=_DECLARED,
    governed=True,
    streams=True,
    example={"model": "starter-assistant", "messages": _HELLO},
)
INVOCATION = Operation(
    summary="A governed answer, in the plane's own shape",
    body="Invocation.Body",
    answer=shapes.InvocationAnswer,
    errors=_DECLARED,
    governed=True,
    example=_INVOCATION,
    answered=_INVOKED,
)
MESSAGE = Operation(
    summary="A governed message, in Anthropic's shape",
    body="Messages.MessagesBody",
    answer=shapes.MessageAnswer,
    errors=_DECLARED,
    governed=True,
    streams=True,
    example={"model": "starter-assistant", "max_tokens": 100, "messages": _HELLO},
)
COUNT_TOKENS = Operation(
    summary="An estimate of a message's input tokens",
    body="Messages.CountedBody",
    answer=shapes.TokenCount,
    errors=_DECLARED,
    example={"messages": _HELLO},
)
MODELS = Operation(
    summary="The workloads that the key may call, and their capabilities",
    answer=shapes.ModelList,
    errors=_BUNDLE,
    either=True,
)
MODEL = Operation(summary="One of them", answer=shapes.Model, errors=_BUNDLE, either=True)
EVIDENCE = Operation(
    summary="What was recorded of a request",
    answer=shapes.EvidenceAnswer,
    errors=(ModelApi.EVIDENCE_NOT_FOUND,),
)
REVIEW = Operation(
    summary="A held answer; no contract can hold one yet",
    answer=shapes.InvocationAnswer,
    errors=(ModelApi.REVIEW_NOT_FOUND,),
)
CANCEL = Operation(
    summary="End a request that is under way",
    answer=shapes.Cancelled,
    errors=(ModelApi.REQUEST_NOT_FOUND,),
    accepted=True,
)
UPLOAD = Operation(
    summary="Upload a batch's lines",
    bodies={"multipart/form-data": _FORM},
    answer=shapes.File,
)
FILES = Operation(
    summary="The application's files, uploaded and of its batches' results, newest first",
    answer=shapes.FileList,
    query={
        "purpose": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "maximum": batches.FILES_ASKED_MAX},
        "order": {"enum": ["asc", "desc"], "default": "desc"},
        "after": {"type": "string"},
    },
)
FILE = Operation(summary="A file", answer=shapes.File)
DROP_FILE = Operation(summary="Erase an uploaded file", answer=shapes.FileDeleted)
CONTENT = Operation(summary="A file's bytes", answer=None)
CREATE_BATCH = Operation(
    summary="Many requests of a P3 workload, of a file or inline",
    bodies={"application/json": _BATCH, "application/jsonl": _LINES},
    answer=shapes.Batch,
    errors=(
        ModelApi.INVALID_DATA_CLASS,
        ModelApi.INVALID_SENSITIVE_TYPE,
        ModelApi.BATCH_REQUIRES_P3,
        ModelApi.DUPLICATE_CUSTOM_ID,
        Governed.UNKNOWN_WORKLOAD,
        *_BUNDLE,
    ),
    declares=True,
)
BATCHES = Operation(
    summary="The application's batches, newest first",
    answer=shapes.BatchList,
    errors=(ModelApi.BATCH_NOT_FOUND,),
    query={
        "limit": {"type": "integer", "minimum": 1, "maximum": batches.PAGE_MAX, "default": batches.PAGE},
        "after": {"type": "string"},
    },
)
BATCH = Operation(summary="A batch", answer=shapes.Batch, errors=(ModelApi.BATCH_NOT_FOUND,))
CANCEL_BATCH = Operation(
    summary="Let a batch take no further request", answer=shapes.Batch, errors=(ModelApi.BATCH_NOT_FOUND,)
)
FEEDBACK = Operation(
    summary="Say how good a request's answer was",
    body="Feedback",
    answer=shapes.FeedbackAnswer,
    errors=(ModelApi.REQUEST_NOT_FOUND, *_DECLARED),
    example={"rating": "down", "score": 20, "labels": ["incorrect", "slow"]},
)
