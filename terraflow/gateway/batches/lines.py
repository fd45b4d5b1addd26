"""The lines of a batch: what a caller gives, what it gets, in OpenAI's form.

1. A line given is `{"custom_id", "method", "url", "body"}`, strict JSON; nothing else is in it. Its body is kept byte
   for byte, and is read when the item runs; only that it asks for no stream is seen to at once.
2. A line got is `{"id", "custom_id", "response", "error"}`: `response` holds what the item's request was answered with,
   `error` says why it never ran; the other one is null.
3. A problem names a line's number and a field, never a value.
"""

from __future__ import annotations

from typing import Any

import msgspec

from terraflow.core.outcome import Problem, Refuse
from terraflow.core.reasons import ModelApi
from terraflow.core.strict_json import BadJson, parse_json

CUSTOM_ID_MAX = 512
_FIELDS = frozenset(("custom_id", "method", "url", "body"))


class Given(msgspec.Struct, frozen=True):
    """What is stored of an item until it has ended."""

    custom_id: str
    body: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_given = msgspec.json.Decoder(Given)


class Reading:
    """The lines read so far: `items` as they are stored, `named` the pairs of a workload and a model that their bodies
    name (None: not named) with the number of the first line that does, and the `endpoint` of all of them, None before
    the first when its reader does not say which it must be."""

    def __init__(self, endpoint: str | None, endpoints: frozenset[str], line_bytes_max: int, values_max: int) -> None:
        self.items: list[bytes] = []
        self.named: dict[tuple[str | None, str | None], int] = {}
        self.endpoint = endpoint
        self._endpoints = endpoints
        self._line_bytes_max = line_bytes_max
        self._values_max = values_max
        self._names: set[str] = set()

    def take(self, lines: list[bytes], first_no: int) -> Refuse | None:
        """Read some lines, numbered from `first_no`; the first fault ends it: INVALID_REQUEST, DUPLICATE_CUSTOM_ID."""
        for no, raw in enumerate(lines, first_no):
            if raw.strip():
                refuse = self._line(raw, no)
                if refuse is not None:
                    return refuse
        return None

    def _line(self, raw: bytes, no: int) -> Refuse | None:
        if len(raw) > self._line_bytes_max:
            return _wrong(no, None, f"must be at most {self._line_bytes_max} bytes")
        try:
            line = parse_json(raw, nodes_max=self._values_max)
        except BadJson as bad:
            return _wrong(no, None, bad.rule)
        if type(line) is not dict or line.keys() != _FIELDS:
            return _wrong(no, None, "must be an object of custom_id, method, url and body")
        name = line["custom_id"]
        if type(name) is not str or not 1 <= len(name) <= CUSTOM_ID_MAX:
            return _wrong(no, "custom_id", f"must be a text of 1 to {CUSTOM_ID_MAX} characters")
        if line["method"] != "POST":
            return _wrong(no, "method", "must be POST")
        if type(line["url"]) is not str or line["url"] not in self._endpoints:
            return _wrong(no, "url", "must be one of " + ", ".join(sorted(self._endpoints)))
        self.endpoint = self.endpoint or line["url"]
        if line["url"] != self.endpoint:
            return _wrong(no, "url", "must be the batch's endpoint")
        if type(line["body"]) is not dict:
            return _wrong(no, "body", "must be an object")
        if line["body"].get("stream") is True:
            return _wrong(no, "body.stream", "is not for batches")
        if name in self._names:
            return Refuse(reason=ModelApi.DUPLICATE_CUSTOM_ID, problems=(problem(no, "custom_id", "must be unique"),))
        self._names.add(name)
        self.named.setdefault((_text(line["body"].get("workload")), _text(line["body"].get("model"))), no)
        self.items.append(_encode(_given.decode(raw)))
        return None


def _text(value: object) -> str | None:
    return value if type(value) is str else None


def given(data: bytes) -> Given:
    """An item as it was stored."""
    return _given.decode(data)


def answered(request_id: str, custom_id: str, status: int, body: bytes) -> bytes:
    """The line of an item that ran, or was refused."""
    response = {"status_code": status, "request_id": request_id, "body": msgspec.Raw(body)}
    return _line(request_id.removeprefix("req_"), custom_id, response, None)


def never_ran(batch_id: str, no: int, custom_id: str, code: str, message: str) -> bytes:
    """The line of an item that did not run."""
    unique = f"{batch_id.removeprefix('batch_')}_{no}"
    return _line(unique, custom_id, None, {"code": code, "message": message})


def _line(unique: str, custom_id: str, response: dict[str, Any] | None, error: dict[str, Any] | None) -> bytes:
    return _encode({"id": "batch_req_" + unique, "custom_id": custom_id, "response": response, "error": error}) + b"\n"


def problem(no: int, field: str | None, rule: str) -> Problem:
    """What is wrong with a line, or with a field of it."""
    return Problem(field=f"lines[{no}]" + ("" if field is None else f".{field}"), rule=rule)


def _wrong(no: int, field: str | None, rule: str) -> Refuse:
    return Refuse(reason=ModelApi.INVALID_REQUEST, problems=(problem(no, field, rule),))
