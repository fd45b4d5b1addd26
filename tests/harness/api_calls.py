"""Generated calls of every route of the model API: whole ones, and such as a bug, a fuzzer or an attacker would make.

1. A call is made of a number, its seed: the same number is the same call, wherever it is asked again.
2. Each text that a caller may choose holds the call's own secret: values, names of fields, tools and schemas, header
   values, ids in paths, keys. No answer, log line, metric or record may hold it.
3. A route that the service has and this file does not know is called with a body of nothing in particular.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from terraflow.gateway.http.routes import ROUTES

Json = dict[str, Any]
PREFIX = "canary7q2x"
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")
_PLAIN = 0.3
"""The part of the calls that is left whole."""


class ApiCall(NamedTuple):
    """What is sent, but for the API key: it goes to the place of `KEY`."""

    number: int
    method: str
    route: str
    raw: bytes
    secret: str
    whole: bool


KEY = b"%KEY%"


def secret_of(number: int) -> str:
    """The secret of a call: no other text of the plane's holds it."""
    return f"{PREFIX}{random.Random(number).getrandbits(64):016x}"


def _chat(s: str) -> Json:
    schema = {"type": "object", "properties": {s: {"type": "string", "description": s}}, "title": s}
    return {
        "model": "fast",
        "messages": [
            {"role": "system", "content": f"Be brief. {s}", "name": s},
            {"role": "user", "content": [{"type": "text", "text": f"Hello {s}"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": s, "type": "function", "function": {"name": "look_up", "arguments": json.dumps({s: s})}}
                ],
            },
            {"role": "tool", "tool_call_id": s, "content": s},
        ],
        "tools": [{"type": "function", "function": {"name": "look_up", "description": s, "parameters": schema}}],
        "tool_choice": "auto",
        "max_tokens": 20,
        "temperature": 0.5,
        "stop": [s],
        "metadata": {s: s},
        "user": s,
        "seed": 7,
    }


def _messages(s: str) -> Json:
    return {
        "model": "fast",
        "max_tokens": 20,
        "system": [{"type": "text", "text": s, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": s}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": s, "name": "look_up", "input": {s: s}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": s, "content": s}]},
        ],
        "tools": [{"name": "look_up", "description": s, "input_schema": {"type": "object", "properties": {s: {}}}}],
        "stop_sequences": [s],
        "metadata": {"user_id": s},
        "temperature": 0.5,
    }


def _counted(s: str) -> Json:
    body = _messages(s)
    for name in ("max_tokens", "stop_sequences", "metadata", "temperature"):
        del body[name]
    return body


def _feedback(_: str) -> Json:
    return {"rating": "up", "score": 90, "labels": ["helpful"]}


def _invocation(s: str) -> Json:
    chat = _chat(s)
    shared = {name: chat[name] for name in ("messages", "tools", "tool_choice", "temperature", "stop", "seed")}
    return shared | {"capability": s, "data_class": "internal", "sensitive_types": ["pii"], "max_output_tokens": 20}


def _lines(s: str) -> list[Json]:
    asked = _chat(s)
    return [
        {"custom_id": f"{s}-{number}", "method": "POST", "url": "/v1/chat/completions", "body": copy.deepcopy(asked)}
        for number in range(2)
    ]


SAMPLES: dict[tuple[str, str], Callable[[str], Any]] = {
    ("POST", "/v1/chat/completions"): _chat,
    ("POST", "/v1/messages"): _messages,
    ("POST", "/v1/messages/count_tokens"): _counted,
    ("POST", "/v1/invocations"): _invocation,
    ("POST", "/v1/requests/*/feedback"): _feedback,
    ("POST", "/v1/files"): _lines,
    ("POST", "/v1/batches"): _lines,
}
"""A whole body for each route that takes one; a list is one of JSON lines."""
_UPLOAD, _BATCH = ("POST", "/v1/files"), ("POST", "/v1/batches")
_TYPES = {_UPLOAD: "multipart/form-data; boundary=part", _BATCH: "application/jsonl"}
_FORM = b"\r\n".join(
    (
        b"--part",
        b'Content-Disposition: form-data; name="purpose"',
        b"",
        b"batch",
        b"--part",
        b'Content-Disposition: form-data; name="file"; filename="asked.jsonl"',
        b"",
        b"%b",
        b"--part--",
        b"",
    )
)
NIGHTLY = "nightly"
"""The workload that batches are for."""
_OPEN = [("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"), ("GET", "/openapi.json")]
"""What answers without an API key."""
_GOVERNED = [("POST", "/v1/chat/completions"), ("POST", "/v1/messages"), ("POST", "/v1/invocations")]
"""Called more often than the others: they hold the most that can go wrong. The first two have streams."""


def _odd(chance: random.Random, s: str) -> Any:
    """A value that a field does not expect."""
    return chance.choice(
        (
            None,
            True,
            0,
            -1,
            2**53 + 1,
            2**63,
            -(2**63) - 1,
            10**30,
            0.1,
            1e308,
            -0.0,
            "",
            s,
            f"{s}\0",
            f"\u202e{s}",
            s * 500,
            [],
            [s],
            {},
            {s: s},
            [[[[s]]]],
            {"type": s},
            [None],
            f"data:image/png;base64,{s}",
        )
    )


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key inside of a document."""
    inside: list[tuple[Any, Any]] = []
    keys: Sequence[Any] = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        inside.append((value, key))
        if isinstance(value[key], dict | list):
            inside += _places(value[key])
    return inside


def _mutate(document: Any, chance: random.Random, s: str) -> None:
    for _ in range(chance.choice((1, 1, 2, 5))):
        places = _places(document)
        if not places:
            return
        container, key = chance.choice(places)
        what = chance.randrange(5)
        if what == 0:
            del container[key]
        elif what == 1:
            container[key] = _odd(chance, s)
        elif what == 2 and isinstance(container, dict):
            container[s] = container.pop(key)
        elif what == 3 and isinstance(container, dict):
            container[chance.choice((s, "stream", "n", "response_format", "tools"))] = _odd(chance, s)
        else:
            other, name = chance.choice(places)
            container[key] = copy.deepcopy(other.get(name) if isinstance(other, dict) else None)


def _break(raw: bytes, chance: random.Random, s: str) -> bytes:
    """Bytes that are hardly JSON any more."""
    at = chance.randrange(len(raw) + 1)
    secret = s.encode()
    return chance.choice(
        (
            raw[:at],
            raw[:at] + secret + raw[at:],
            raw[:at] + b"\xff" + raw[at:],
            b'{"%b": 1, "%b": 2, ' % (secret, secret) + raw[1:],
            b"[" * 100 + raw,
            raw + secret,
            raw.replace(b"0.5", b"NaN").replace(b'"' + secret, rb'"\ud800' + secret, 1),
            secret,
            b"",
        )
    )


_HEADERS: tuple[Callable[[str], str], ...] = (
    lambda s: f"X-TerraFlow-Data-Class: {s}",
    lambda s: f"X-TerraFlow-Sensitive-Types: pii, {s}",
    lambda s: f"X-TerraFlow-Deadline-Ms: {s}",
    lambda s: "X-TerraFlow-Deadline-Ms: 1",
    lambda s: f"X-TerraFlow-Workload: {s}",
    lambda s: f"X-TerraFlow-Run-Id: no run {s}",
    lambda s: f"X-TerraFlow-Run-Budget-Usd: {s}",
    lambda s: f"X-TerraFlow-{s}: {s}",
    lambda s: f"Content-Type: text/{s}",
    lambda s: f"Content-Encoding: {s}",
    lambda s: f"Idempotency-Key: {s}",
    lambda s: f"Idempotency-Key: {s * 20}",
    lambda s: f"anthropic-version: {s}",
    lambda s: f"anthropic-beta: {s}",
    lambda s: f"x-api-key: tf_{s}",
    lambda s: f"Cookie: {s}={s}",
    lambda s: f"User-Agent: {s}",
    lambda s: f"Referer: https://example.com/{s}?{s}",
    lambda s: f"Accept: text/{s}",
    lambda s: f"Host: {s}",
    lambda s: f"X-Forwarded-For: {s}",
    lambda s: f"traceparent: 00-{s}-{s}-01",
    lambda s: f"{s}: {s}",
)
_KEYS: tuple[Callable[[str], str], ...] = (
    lambda s: f"Authorization: Bearer tf_{s}",
    lambda s: f"Authorization: Basic {s}",
    lambda s: f"x-api-key: {s}",
)


def api_call(number: int, ids: Mapping[str, Sequence[str]], workloads: Mapping[str, str]) -> ApiCall:
    """The call of a number. `ids` are of what there is, by `kind_of` a route; `workloads` has a capability of each."""
    chance, s = random.Random(number), secret_of(number)
    method, route = chance.choice(sorted(ROUTES) + _OPEN + _GOVERNED * 6)
    workload = NIGHTLY if (method, route) == _BATCH else chance.choice(sorted(workloads))
    whole = chance.random() < _PLAIN
    path = _path(route, chance, s, ids, whole=whole)
    lines = ["Authorization: Bearer " + KEY.decode(), f"X-TerraFlow-Workload: {workload}"]
    if (method, route) in _TYPES:
        lines.append(f"Content-Type: {_TYPES[method, route]}")
    body = _body(method, route, chance, s, workloads[workload], whole=whole)
    if not whole:
        lines += [line(s) for line in chance.choices(_HEADERS, k=chance.choice((0, 0, 1, 2)))]
        if chance.random() < 0.05:
            lines[0] = chance.choice(_KEYS)(s)
        if chance.random() < 0.05:
            method = chance.choice(_METHODS)
    head = [f"{method} {path} HTTP/1.1", "Host: plane", *lines, f"Content-Length: {len(body)}", "", ""]
    return ApiCall(number, method, route, "\r\n".join(head).encode() + body, s, whole)


def _body(method: str, route: str, chance: random.Random, s: str, capability: str, *, whole: bool) -> bytes:
    sample = SAMPLES.get((method, route))
    if sample is None:
        return s.encode() if not whole and chance.random() < 0.3 else b""
    document = sample(s)
    for asked in [item["body"] for item in document] if isinstance(document, list) else [document]:
        asked |= {name: capability for name in ("model", "capability") if name in asked}
    if (method, route) in _GOVERNED[:2] and chance.random() < 0.3:
        document["stream"] = True
    if not whole and chance.random() < 0.7:
        _mutate(document, chance, s)
    made = [json.dumps(item) for item in (document if isinstance(document, list) else [document])]
    body = "\n".join(made).encode()
    if (method, route) == _UPLOAD:
        body = _FORM % body
    return _break(body, chance, s) if not whole and chance.random() < 0.15 else body


def kind_of(route: str) -> str:
    """What stands at the star of a route: `req`, `file`, `batch`, or `model`."""
    return {"files": "file", "batches": "batch", "models": "model"}.get(route.split("/")[2], "req")


def _path(route: str, chance: random.Random, s: str, ids: Mapping[str, Sequence[str]], *, whole: bool) -> str:
    if "*" not in route:
        return route if whole or chance.random() < 0.9 else chance.choice((f"{route}/{s}", f"{route}?{s}={s}", f"/{s}"))
    kind = kind_of(route)
    name = chance.choice(ids.get(kind) or [f"{kind}_0"])
    if whole or chance.random() < 0.8:
        return route.replace("*", name)
    odd = chance.choice((s, f"{kind}_{s}", s * 50, f"%2e%2e%2f{s}", f"..{s}", f"{kind}_" + "0" * 32, ""))
    return chance.choice((route.replace("*", odd), f"{route.replace('*', name)}/{s}", f"/v1/{s}", f"/{s}?{s}={s}"))
