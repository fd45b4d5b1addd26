"""What schemathesis is told besides an API description: what that says in words alone.

1. `stream_options` come only with `stream`; a deadline can be met; an idempotency key is of one request.
2. Each event of a stream of chat chunks is described by the chunk's shape, an error in it by the error's, and the last
   one is `[DONE]` or an error. That is a check of its own, `described_stream`: the description has no way to say it.
   The shapes are those of OpenAI's description in the file that the variable DESCRIPTION names.
"""

from __future__ import annotations

import itertools
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import schemathesis

DEADLINE_MS = "20000"
KEYS = itertools.count()
DONE = "[DONE]"


@cache
def described(name: str) -> Any:
    """What validates against a schema of the description."""
    components = json.loads(Path(os.environ["DESCRIPTION"]).read_text())["components"]
    return jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": components})


@schemathesis.hook
def before_call(_: Any, case: Any, __: Any) -> None:
    """Rule 1."""
    body = case.body
    if isinstance(body, dict) and body.get("stream") is not True and isinstance(body.get("stream_options"), dict):
        body.pop("stream_options")
    headers = case.headers or {}
    for name, value in list(headers.items()):
        if name.lower() == "x-terraflow-deadline-ms" and str(value).isdecimal():
            headers[name] = DEADLINE_MS
        if name.lower() == "idempotency-key":
            headers[name] = f"{value}-{next(KEYS)}"


@schemathesis.check
def described_stream(_: Any, response: Any, case: Any) -> None:
    """Rule 2."""
    kind = next(iter(response.headers.get("content-type", [""])))
    if not case.path.endswith("/chat/completions") or not kind.startswith("text/event-stream"):
        return
    said = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    assert said, "a stream without an event"
    *chunks, last = said
    for chunk in chunks:
        check("CreateChatCompletionStreamResponse", chunk)
    if last != DONE:
        check("ErrorResponse", last)


def check(name: str, event: str) -> None:
    """Fails with what is wrong with an event's data by a schema of the description."""
    wrong = [problem.message for problem in described(name).iter_errors(json.loads(event))]
    assert not wrong, f"{name}: {wrong}"
