"""A request's head, read so that no two readers can understand it differently.

1. Refused before anything else: more than 100 headers or 16 KiB of them, a second Host, Authorization, x-api-key,
   Content-Length, Content-Type, Content-Encoding or Idempotency-Key, two credentials that disagree, a path with an
   encoded slash or a dot segment, a body that is encoded or is not JSON by its Content-Type.
2. `x-terraflow-*` names are the plane's: an unknown one, or a second of one, is refused.
3. Values never appear in an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import ModelApi
from terraflow.core.types import DATA_CLASSES, SENSITIVE_TYPES
from terraflow.gateway.declaring import RUN, RUN_RULE, WORKLOAD, WORKLOAD_RULE, run_budget
from terraflow.gateway.exchange import Declared

HEADERS_MAX = 100
HEAD_BYTES_MAX = 16 * 1024

_ONCE = frozenset(
    (
        b"host",
        b"authorization",
        b"x-api-key",
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"idempotency-key",
    )
)
_OURS = b"x-terraflow-"
_NAMES = (b"workload", b"data-class", b"sensitive-types", b"deadline-ms", b"run-id", b"run-budget-usd")
_KNOWN = frozenset(_OURS + name for name in _NAMES)
_DEADLINE = re.compile(rb"[1-9][0-9]{0,9}")
_KEY = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
JSON_TYPE = re.compile(rb"application/json\s*(?:;\s*charset\s*=\s*\"?utf-8\"?\s*)?", re.IGNORECASE)
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([\x21-\x7e]{1,512})")


class Head(msgspec.Struct, frozen=True):
    """The headers that the plane reads, each at most once."""

    values: dict[bytes, bytes]

    @property
    def bearer(self) -> bytes | None:
        """The token of `Authorization: Bearer …`, None when there is none in its form."""
        found = _BEARER.fullmatch(self.values.get(b"authorization", b""))
        return None if found is None else found[1]

    @property
    def api_key(self) -> bytes | None:
        """The key of `Authorization: Bearer …` or `x-api-key`, None when there is none in its form."""
        return self.bearer if b"authorization" in self.values else self.values.get(b"x-api-key")


def parse_head(headers: Sequence[tuple[bytes, bytes]], raw_path: bytes) -> Head | Refuse:
    """The head by rule 1. `headers` as a wire gives them: names in lower case, in order of arrival."""
    if len(headers) > HEADERS_MAX:
        return invalid_request("headers", f"must be at most {HEADERS_MAX}")
    values: dict[bytes, bytes] = {}
    size = len(raw_path)
    for name, value in headers:
        size += len(name) + len(value)
        if name in values and (name in _ONCE or name.startswith(_OURS)):
            return invalid_request(_shown(name), "must be given once")
        values[name] = value
    if size > HEAD_BYTES_MAX:
        return invalid_request("headers", f"must be at most {HEAD_BYTES_MAX} bytes")
    if b"%" in raw_path or b"/." in raw_path or b"//" in raw_path or b"\\" in raw_path:
        return invalid_request("path", "must not be encoded and must hold no dot or empty segments")
    head = Head(values)
    if b"authorization" in values and b"x-api-key" in values and head.bearer != values[b"x-api-key"]:
        return invalid_request("x-api-key", "must not contradict authorization")
    return head


def unknown_name(head: Head) -> Refuse | None:
    """INVALID_REQUEST when a name is the plane's by its beginning, and none that it knows (rule 2): a declaration that
    is spelled wrong would be none."""
    if any(name.startswith(_OURS) and name not in _KNOWN for name in head.values):
        return invalid_request("headers", "must hold no unknown x-terraflow- name")
    return None


def parse_declared(head: Head) -> Declared | Refuse:
    """What the caller declared, in names that are known; INVALID_REQUEST, INVALID_DATA_CLASS, INVALID_DEADLINE or
    INVALID_SENSITIVE_TYPE."""
    values = head.values
    content_type = values.get(b"content-type")
    if content_type is not None and JSON_TYPE.fullmatch(content_type) is None:
        return invalid_request("content-type", "must be application/json in UTF-8")
    if values.get(b"content-encoding", b"identity") != b"identity":
        return invalid_request("content-encoding", "must be absent: bodies are sent uncompressed")
    key = values.get(b"idempotency-key")
    if key is not None and _KEY.fullmatch(key) is None:
        return invalid_request("idempotency-key", "must be 1 to 255 printable ASCII characters")
    if _KNOWN.isdisjoint(values):
        return Declared(idempotency_key=_text(key))
    workload = _text(values.get(b"x-terraflow-workload"))
    if workload is not None and WORKLOAD.fullmatch(workload) is None:
        return invalid_request("x-terraflow-workload", WORKLOAD_RULE)
    named_class = values.get(b"x-terraflow-data-class")
    data_class = None if named_class is None else DATA_CLASSES.get(named_class.decode("latin-1"))
    if named_class is not None and data_class is None:
        return Refuse(reason=ModelApi.INVALID_DATA_CLASS)
    deadline = values.get(b"x-terraflow-deadline-ms")
    if deadline is not None and _DEADLINE.fullmatch(deadline) is None:
        return Refuse(reason=ModelApi.INVALID_DEADLINE)
    named_types = values.get(b"x-terraflow-sensitive-types")
    words = [] if named_types is None else [word.strip() for word in named_types.decode("latin-1").split(",")]
    types = frozenset(SENSITIVE_TYPES[word] for word in words if word in SENSITIVE_TYPES)
    if any(word not in SENSITIVE_TYPES for word in words):
        return Refuse(reason=ModelApi.INVALID_SENSITIVE_TYPE)
    run_id, said = _text(values.get(b"x-terraflow-run-id")), _text(values.get(b"x-terraflow-run-budget-usd"))
    if run_id is not None and RUN.fullmatch(run_id) is None:
        return invalid_request("x-terraflow-run-id", RUN_RULE)
    if said is not None and run_id is None:
        return invalid_request("x-terraflow-run-budget-usd", "must come with x-terraflow-run-id")
    budget = None if said is None else run_budget(said)
    if isinstance(budget, str):
        return invalid_request("x-terraflow-run-budget-usd", budget)
    return Declared(
        workload=workload,
        data_class=data_class,
        sensitive_types=types,
        deadline_ms=None if deadline is None else int(deadline),
        idempotency_key=_text(key),
        run_id=run_id,
        run_budget=budget,
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _shown(name: bytes) -> str:
    return name.decode("ascii") if name in _ONCE or name in _KNOWN else "headers"
