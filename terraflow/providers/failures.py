"""What a vendor's refusal means: one table a vendor, the first row that holds decides.

1. A row holds if the status is one of its statuses, and one of its words is the error's type or code, and the
   field the error names is of its kind; an empty column holds always.
2. The vendor's message is looked at for two things alone, a field's name and a billing phrase, and goes nowhere.
3. `reached` is whether the vendor may have worked on the request, and so may send a bill. Azure bills a prompt
   that its filter refused; refusals of rate, credential and shape cost nothing with any vendor.
4. A 200 that holds an error is classed by the words of its body, and is MALFORMED when no row knows them. The
   vendor had begun, so it counts as reached.

Sources: the vendors' pages on errors (OpenAI "Error codes", Anthropic "Errors", Azure "Content filtering"), vLLM's
and llama.cpp's error bodies, and the error types of the vendors' own client libraries.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp.http_exceptions import HttpProcessingError

from terraflow.core.chat_fields import named
from terraflow.ports.upstream import Failure, ProviderFailure
from terraflow.providers.refusal import Refusal, refusal_of


class Names(Enum):
    """What kind of field a refusal names."""

    ANY = auto()
    CONTENT = auto()
    """The caller's messages or tool schemas, or nothing at all."""
    MODEL = auto()
    OTHER = auto()


class Row(NamedTuple):
    """One line of a table. `statuses` and `words` empty: any."""

    statuses: tuple[int, ...]
    words: tuple[str, ...]
    names: Names
    failure: Failure
    reached: bool


_SHAPE = (400, 413, 422)

# fmt: off
_QUOTA = ("insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
          "project_spend_limit_exceeded", "organization_usage_limit_exceeded", "billing_hard_limit_reached",
          "billing_not_active", "account_deactivated", "access_terminated", "payment_required", "quota_exceeded")
_FILTER = ("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "moderation_blocked",
           "invalid_prompt", "cyber_policy_violation")
_SPENT = ("billing_error", "enforced_spend_limit_reached", "contract_spend_limit_reached", "organization_on_hold",
          "linked_organization_spend_limit_reached", "linked_organization_billing_unavailable", "spend")

_BY_STATUS: tuple[Row, ...] = (
    Row((401, 402, 403, 407),      (), Names.ANY,     Failure.AUTHENTICATION,   False),
    Row((404, 405, 410),           (), Names.ANY,     Failure.MODEL_NOT_FOUND,  False),
    Row((408,),                    (), Names.ANY,     Failure.TIMEOUT,          True),
    Row((429,),                    (), Names.ANY,     Failure.RATE_LIMITED,     False),
    Row((503, 529, 425),           (), Names.ANY,     Failure.OVERLOADED,       False),
    Row((411, 414, 415, 431),      (), Names.ANY,     Failure.MISMATCH,         False),
    Row(_SHAPE,                    (), Names.MODEL,   Failure.MODEL_NOT_FOUND,  False),
    Row(_SHAPE,                    (), Names.OTHER,   Failure.MISMATCH,         False),
    Row(_SHAPE,                    (), Names.CONTENT, Failure.REJECTED_CONTENT, False),
    Row(tuple(range(300, 400)),    (), Names.ANY,     Failure.MALFORMED,        False),
    Row(tuple(range(400, 600)),    (), Names.ANY,     Failure.SERVER_ERROR,     True),
    Row((),                        (), Names.ANY,     Failure.MALFORMED,        True),
)

OPENAI: tuple[Row, ...] = (
    Row((),   _FILTER,                                          Names.ANY, Failure.CONTENT_FILTERED, True),
    Row((),   _QUOTA,                                           Names.ANY, Failure.AUTHENTICATION,   False),
    Row((),   ("invalid_api_key", "authentication_error",
               "authenticationerror", "permission_error"),      Names.ANY, Failure.AUTHENTICATION,   False),
    Row((),   ("model_not_found", "deploymentnotfound",
               "model_not_available", "not_found_error",
               "notfounderror"),                                Names.ANY, Failure.MODEL_NOT_FOUND,  False),
    Row((),   ("context_length_exceeded", "string_above_max_length",
               "exceed_context_size_error"),                    Names.ANY, Failure.REJECTED_CONTENT, False),
    Row((),   ("rate_limit_exceeded", "rate_limit_error",
               "tokens", "requests", "slow_down"),              Names.ANY, Failure.RATE_LIMITED,     False),
    Row((),   ("overloaded_error", "service_unavailable",
               "unavailable_error", "server_overloaded",
               "engine_overloaded"),                            Names.ANY, Failure.OVERLOADED,       False),
    Row((200,), ("server_error", "internal_server_error",
                 "internalservererror", "internal_error"),      Names.ANY, Failure.SERVER_ERROR,     True),
    *_BY_STATUS,
)

ANTHROPIC: tuple[Row, ...] = (
    Row((),   _SPENT,                                           Names.ANY, Failure.AUTHENTICATION,   False),
    Row((),   ("authentication_error", "permission_error"),     Names.ANY, Failure.AUTHENTICATION,   False),
    Row((),   ("not_found_error",),                             Names.ANY, Failure.MODEL_NOT_FOUND,  False),
    Row((),   ("request_too_large",),                           Names.ANY, Failure.REJECTED_CONTENT, False),
    Row((),   ("rate_limit_error",),                            Names.ANY, Failure.RATE_LIMITED,     False),
    Row((),   ("overloaded_error",),                            Names.ANY, Failure.OVERLOADED,       False),
    Row((),   ("timeout_error",),                               Names.ANY, Failure.TIMEOUT,          True),
    Row((200,), ("api_error",),                                 Names.ANY, Failure.SERVER_ERROR,     True),
    *_BY_STATUS,
)
# fmt: on

_CONTENT_FIELDS = frozenset(
    {"messages", "message", "tools", "functions", "system", "prompt", "input", "contents", "content", "body"}
)
_BILLING_PHRASES = ("credit balance is too low", "usage limits", "spend limit")


def decide_failure(table: tuple[Row, ...], refusal: Refusal) -> Row:
    """The row that holds for a refusal; every table ends in one that always does."""
    words = set(refusal.words)
    if any(phrase in refusal.message for phrase in _BILLING_PHRASES):
        words.add("spend")
    names = _kind(refusal.field)
    for row in table:
        if row.statuses and refusal.status not in row.statuses:
            continue
        if row.words and words.isdisjoint(row.words):
            continue
        if row.names is Names.ANY or row.names is names:
            return row
    raise AssertionError("a table of failures has no last row")


def _kind(field: str | None) -> Names:
    if field is None or field in _CONTENT_FIELDS:
        return Names.CONTENT
    return Names.MODEL if field == "model" else Names.OTHER


def failure_of(table: tuple[Row, ...], refusal: Refusal, *, begun: bool = False) -> ProviderFailure:
    """The exception to raise for a refusal; `begun` when it came inside a success."""
    row = decide_failure(table, refusal)
    return ProviderFailure(
        row.failure,
        reached=row.reached or begun,
        retry_after_s=refusal.retry_after_s,
        fields=(named(refusal.field),) if row.failure is Failure.MISMATCH and refusal.field is not None else (),
        status=refusal.status,
        in_vain=refusal.in_vain,
    )


def failure_of_success(table: tuple[Row, ...], raw: bytes) -> ProviderFailure:
    """The exception to raise for a success, or an event of one, that is not an answer."""
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        document = None
    if isinstance(document, dict) and (
        document.get("error") or "error" in (document.get("object"), document.get("type"))
    ):
        return failure_of(table, refusal_of(200, document, begun=True), begun=True)
    return ProviderFailure(Failure.MALFORMED, reached=True, status=200)


def unsupported(*fields: str) -> ProviderFailure:
    """The exception to raise for fields that the vendor has no words for: nothing was sent."""
    return ProviderFailure(Failure.UNSUPPORTED_FIELD, reached=False, fields=fields)


class Break(NamedTuple):
    """One line of the table of exceptions."""

    exception: type[BaseException]
    failure: Failure
    reached: bool


# fmt: off
BREAKS: tuple[Break, ...] = (
    # aiohttp raises ConnectionTimeoutError only while it waits for a connection, so nothing was sent.
    Break(aiohttp.ConnectionTimeoutError,     Failure.CONNECT,   False),
    Break(aiohttp.ClientConnectorError,       Failure.CONNECT,   False),
    Break(asyncio.TimeoutError,               Failure.TIMEOUT,   True),
    # The connection was there and broke: the request, or a part of it, may have arrived.
    Break(aiohttp.ServerDisconnectedError,    Failure.CUT_OFF,   True),
    Break(aiohttp.ClientPayloadError,         Failure.CUT_OFF,   True),
    Break(aiohttp.ClientOSError,              Failure.CUT_OFF,   True),
    Break(aiohttp.ClientConnectionError,      Failure.CUT_OFF,   True),
    Break(aiohttp.ClientResponseError,        Failure.MALFORMED, True),
    Break(HttpProcessingError,                Failure.MALFORMED, True),
    Break(OSError,                            Failure.CUT_OFF,   True),
    Break(aiohttp.ClientError,                Failure.MALFORMED, True),
)
# fmt: on


NETWORK = (aiohttp.ClientError, HttpProcessingError, OSError, asyncio.TimeoutError)
"""Every exception that the table classes; anything else is a fault of ours."""


def failure_of_break(broken: BaseException) -> ProviderFailure:
    """The failure that an exception of `NETWORK` stands for."""
    row = next(row for row in BREAKS if isinstance(broken, row.exception))
    return ProviderFailure(row.failure, reached=row.reached)
