"""The model providers, as the pipeline sees them.

1. A provider MUST translate everything its vendor says into the types of this module; nothing of a vendor's
   wording leaves it. It MUST raise `ProviderFailure` and no other exception for anything the vendor or the network
   did.
2. A provider MUST send `Call.output_tokens_max` as the vendor's own output limit, always.
3. A provider MUST NOT retry, fall back, or sleep: recovery is the gateway's.
4. A request field that the vendor cannot take MUST raise `Failure.UNSUPPORTED_FIELD` before anything is sent; it
   is never dropped.
5. `stream` MUST raise before the first chunk if the call fails before it, and MUST close the vendor's connection
   when the iterator is closed.
6. A provider of several replicas MUST tell `Call.placed` which one it is about to call, before it does, and MUST set
   `ProviderFailure.elsewhere` when the failure is that replica's own and another could take the call now.
7. The neutral request and answer have the shape of OpenAI's chat completions, which every kind of provider
   translates to and from (docs/adr/0002-neutral-shape.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Any, Protocol

import msgspec


class Failure(StrEnum):
    """Every way in which a provider's call can fail. The recovery table has a row for each."""

    CONNECT = "connect"
    """No connection, or it broke before a byte of the request could have been acted on."""
    TIMEOUT = "timeout"
    """The call's deadline passed; the vendor may have worked."""
    CUT_OFF = "cut_off"
    """The answer ended before it was whole."""
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    AUTHENTICATION = "authentication"
    """Our credential, quota or account was refused."""
    MODEL_NOT_FOUND = "model_not_found"
    MALFORMED = "malformed"
    """A success that is not in the vendor's shape, a 200 that holds an error among them."""
    REJECTED_CONTENT = "rejected_content"
    """The vendor refused the caller's messages or tool schemas, or named nothing."""
    MISMATCH = "mismatch"
    """The vendor refused another field: another route may take it."""
    UNSUPPORTED_FIELD = "unsupported_field"
    """The adapter knows that the vendor has no such field; nothing was sent."""
    CONTENT_FILTERED = "content_filtered"


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one call. Every token is counted in exactly one field, so that a cost is a plain sum of products.

    Vendors disagree: OpenAI counts cached and audio tokens inside its prompt tokens and reasoning inside its
    completion tokens, Anthropic counts cache reads and writes beside its input tokens. Adapters translate.
    """

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    audio_input: int = 0
    output: int = 0
    reasoning: int = 0
    audio_output: int = 0
    estimated: bool = False

    @classmethod
    def counted(cls, request: ModelRequest, output_bytes: int) -> Usage:
        """Our own count, for a vendor that named none. Marked `estimated`."""
        return cls(input=request.input_estimate, output=tokens_of(output_bytes), estimated=True)

    @property
    def input_total(self) -> int:
        """What an OpenAI client knows as `prompt_tokens`."""
        return self.input + self.cached_input + self.cache_write + self.audio_input

    @property
    def output_total(self) -> int:
        """What an OpenAI client knows as `completion_tokens`."""
        return self.output + self.reasoning + self.audio_output


class ProviderFailure(Exception):
    """A provider's call failed. Carries no text of the vendor's or the caller's.

    `usage` is what the vendor is known to have counted, if it said; `reached` is whether the request may have been
    acted on, and so may have to be paid for. `in_vain` is whether the vendor said that asking it again is. `elsewhere`
    is whether it speaks of one replica alone: another of the same capability could take the call now.
    """

    def __init__(
        self,
        failure: Failure,
        *,
        reached: bool,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
        fields: tuple[str, ...] = (),
        status: int | None = None,
        in_vain: bool = False,
    ) -> None:
        super().__init__(failure.value)
        self.failure = failure
        self.reached = reached
        self.retry_after_s = retry_after_s
        self.usage = usage
        self.fields = fields
        self.status = status
        self.in_vain = in_vain
        self.elsewhere = False


def tokens_of(text_bytes: int) -> int:
    """About so many tokens: four bytes each, the usual mean of English text, rounded up."""
    return -(-text_bytes // 4)


def input_estimate(size_bytes: int, inline_bytes: int, attachment_tokens_max: int) -> int:
    """About so many tokens of input: the text's, with the attachments' bounds for their bytes. Wherever an input is
    estimated, this is the number."""
    return tokens_of(size_bytes - inline_bytes) + attachment_tokens_max


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request in neutral form.

    `document` is the parsed chat body as it will be sent on: strictly parsed JSON, without `model`, `stream`,
    `stream_options` and the fields that say how long an answer may be, which travel beside it. `audio`: some goes
    in or is asked for, which has prices of its own. `extended`: it came in another shape than OpenAI's, and may hold
    the extension fields of docs/adr/0019-extension-fields.md. `checkable_schema`: an `output_schema` that cannot be
    checked is refused, whether or not the contract has it checked.
    """

    document: dict[str, Any]
    stream: bool
    include_usage: bool
    output_tokens_max: int | None
    choices: int
    tool_names: tuple[str, ...]
    output_schema: dict[str, Any] | None
    model: str | None
    size_bytes: int
    inline_bytes: int = 0
    attachment_tokens_max: int = 0
    audio: bool = False
    extended: bool = False
    checkable_schema: bool = False

    @property
    def input_bound(self) -> int:
        """The most tokens that the input can be: a token a byte, with the attachments' own bounds for their bytes."""
        return self.size_bytes - self.inline_bytes + self.attachment_tokens_max

    @property
    def input_estimate(self) -> int:
        """About so many tokens is the input; never more than `input_bound`."""
        return input_estimate(self.size_bytes, self.inline_bytes, self.attachment_tokens_max)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation, oldest first."""
        return self.document["messages"]  # type: ignore[no-any-return]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Which replica of a capability a call goes to, and what was advised, for the record.

    `hint` is the reason code of the route hint, None when none was asked for; `ranked` the replica that it put first,
    and `matched_tokens` what it said of that one.
    """

    replica: str
    hint: str | None = None
    ranked: str | None = None
    matched_tokens: int = 0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt on the capability that the provider speaks for.

    `timeout_s` bounds the whole call; `reasoning_budget_tokens` is the contract's, None for none. `placed` is told of
    the replica, where there are several; `failed_replicas` are those on which this request has already failed.
    `connecting` is told True while nothing of the call has gone out yet, and False from its first byte on.
    """

    request: ModelRequest
    output_tokens_max: int
    reasoning_budget_tokens: int | None
    timeout_s: float
    placed: Callable[[Placement], None] | None = None
    failed_replicas: tuple[str, ...] = ()
    connecting: Callable[[bool], None] | None = None


class Beside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a vendor said of an answer for which its own shape alone has a place: shown by the mouth of that shape, and
    never paid by.

    `stop_reason` is Anthropic's word for a finish that OpenAI's words do not tell from another, `stop_details` its
    facts about a refusal, `usage` what stands beside its counts when an answer begins; `prompt_tokens` and
    `completion_tokens` are parts of OpenAI's counts that `Usage` does not tell apart, by OpenAI's names.
    """

    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: dict[str, Any] = {}
    prompt_tokens: dict[str, int] = {}
    completion_tokens: dict[str, int] = {}


NOTHING_BESIDE = Beside()


class Answer(msgspec.Struct, kw_only=True):
    """A whole answer. `choices` are OpenAI chat choices: `index`, `message`, `finish_reason`, perhaps `logprobs`.

    `extras` holds the vendor's further top-level fields that clients know (`system_fingerprint`, `service_tier`).
    `usage` is the vendor's, or `Usage.counted` where it named none. `stop_sequence` is the one that ended the only
    choice, where the vendor says so.
    """

    choices: list[dict[str, Any]]
    usage: Usage
    extras: dict[str, Any] = {}
    stop_sequence: str | None = None
    beside: Beside = NOTHING_BESIDE


class Chunk(msgspec.Struct, kw_only=True):
    """A piece of a streamed answer. `choices` are OpenAI chunk choices: `index`, `delta`, `finish_reason`, …

    The vendor's usage comes as a chunk with `usage` set and usually no choices; a later one replaces an earlier
    one. A stream whose vendor names no usage has none. `stop_sequence` comes with the finish reason. `begun` comes with
    the first chunk, of a vendor that counts the input before it answers: to be shown, not to be paid by. A later
    `beside` replaces an earlier one.
    """

    choices: list[dict[str, Any]]
    usage: Usage | None = None
    extras: dict[str, Any] = {}
    stop_sequence: str | None = None
    begun: Usage | None = None
    beside: Beside | None = None


class Provider(Protocol):
    """One capability behind its vendor's API: endpoint, credential and model name are bound when it is opened."""

    async def complete(self, call: Call) -> Answer:
        """The whole answer. Raises ProviderFailure; cancelling it closes the vendor's connection."""
        ...

    def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """The answer piece by piece; see rule 5 of this module."""
        ...

    async def close(self) -> None:
        """Give back connections. Idempotent."""
        ...
