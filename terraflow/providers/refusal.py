"""A vendor's refusal, read from its status, headers and body into the few words that the tables of failures ask
for.

1. Every shape in use is read: `{"error": {…}}` (OpenAI, Azure, Anthropic, llama.cpp, newer vLLM), the error at top
   level (older vLLM, SGLang), `{"detail": …}` (FastAPI's own validation). Anything else is a refusal without
   words.
2. A body is looked at, never believed: whatever it holds, `parse_refusal` returns.
3. A field is named by `param`, by the path at the beginning of the message, or by quotes around a known name; a
   word that is no request field of either vendor, or that is plain English there ("user …"), names nothing.
4. `retry_after_s` is between 0 and `RETRY_AFTER_MAX_S`: what a vendor asks beyond that is no retry. `in_vain` is what
   `x-should-retry: false` says, which the vendors' own libraries obey.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from terraflow.core.chat_fields import CHAT_FIELDS, UNKNOWN_FIELD

RETRY_AFTER_MAX_S = 3600.0
"""One hour; the longest deadline of a request is shorter."""

BODY_BYTES_MAX = 64 * 1024
"""Of an error's body; what is longer is not read."""

_VENDOR_FIELDS = frozenset(
    {"system", "thinking", "output_config", "stop_sequences", "top_k", "tool", "cache_control", "input", "prompt",
     "contents", "content", "body"}
)  # fmt: skip
_FIELDS = CHAT_FIELDS | _VENDOR_FIELDS
_SAME_FIELD = {"output_config": "response_format", "stop_sequences": "stop", "tool": "tools", "body": "messages"}
_PATH = re.compile(r"([a-z_]{1,64})(?=[.:\[])|([a-z]{1,32}_[a-z_]{1,64})(?=\s)")
_QUOTED = re.compile(r"[`'\"]([a-z_]{1,64})(?:[.\[][a-z0-9_.\[\]]{0,200})?[`'\"]")
_MESSAGE_MAX = 2_000


class Refusal(NamedTuple):
    """What a vendor said, as far as anybody acts on it. `words` and `message` are lower case."""

    status: int
    words: tuple[str, ...] = ()
    field: str | None = None
    message: str = ""
    retry_after_s: float | None = None
    in_vain: bool = False


def parse_refusal(status: int, headers: Mapping[str, str], body: bytes, now_s: float) -> Refusal:
    """The refusal of a response; `now_s` is UTC epoch seconds, for dates in Retry-After."""
    try:
        document = msgspec.json.decode(body) if len(body) <= BODY_BYTES_MAX else None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document = None
    refusal = refusal_of(status, document, parse_retry_after_s(headers, now_s))
    return refusal._replace(in_vain=headers.get("x-should-retry") == "false")


def refusal_of(status: int, document: Any, retry_after_s: float | None = None, *, begun: bool = False) -> Refusal:
    """The refusal of an error's parsed body. Inside a success (`begun`) the body's own code stands for the
    status."""
    if not isinstance(document, dict):
        return Refusal(status, retry_after_s=retry_after_s)
    error = document.get("error")
    if isinstance(error, str):
        error = {"message": error, "type": document.get("code")}
    elif not isinstance(error, dict):
        error = document
    if begun and isinstance(error.get("code"), int):
        status = error["code"]
    details, inner = error.get("details"), error.get("innererror")
    words = [error.get("type"), error.get("code"), error.get("status")]
    for part in (details, inner):
        if isinstance(part, dict):
            words += [part.get("error_code"), part.get("code")]
    message = error.get("message")
    message = message[:_MESSAGE_MAX] if isinstance(message, str) else ""
    return Refusal(
        status=status,
        words=tuple(word.lower() for word in words if isinstance(word, str) and len(word) <= 64),
        field=_named_field(error, document, message),
        message=message.lower(),
        retry_after_s=retry_after_s,
    )


def _named_field(error: dict[str, Any], document: dict[str, Any], message: str) -> str | None:
    param = error.get("param")
    if isinstance(param, str) and param:
        return _field(re.split(r"[.\[]", param, maxsplit=1)[0])
    detail = document.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        place = detail[0].get("loc")
        if isinstance(place, list) and len(place) > 1 and isinstance(place[1], str):
            return _field(place[1])
    found = _PATH.match(message)
    if found is not None and (found[1] or found[2]) in _FIELDS:
        return _field(found[1] or found[2])
    return next((_field(name) for name in _QUOTED.findall(message) if name in _FIELDS), None)


def _field(name: str) -> str | None:
    """The neutral name of a vendor's field; a name that nobody knows may be the caller's content, and is not
    kept."""
    name = _SAME_FIELD.get(name, name)
    return name if name in _FIELDS else UNKNOWN_FIELD


def parse_retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Seconds to wait, from `retry-after-ms`, else `Retry-After` (RFC 9110 10.2.3: seconds or a date)."""
    wait_ms = _number(headers.get("retry-after-ms"))
    if wait_ms is not None:
        return min(wait_ms / 1000, RETRY_AFTER_MAX_S)
    said = headers.get("retry-after")
    if said is None:
        return None
    wait_s = _number(said)
    if wait_s is not None:
        return min(wait_s, RETRY_AFTER_MAX_S)
    try:
        at_s = parsedate_to_datetime(said[:64]).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return min(max(at_s - now_s, 0.0), RETRY_AFTER_MAX_S)


def _number(text: str | None) -> float | None:
    if text is None or len(text) > 32:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
