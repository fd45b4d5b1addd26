"""The shapes of what `/v1` answers, as `openapi` describes them; tests hold real answers against them.

A field that may be absent is `UNSET` here. What a vendor adds to what its model said travels on, so a chat's choice and
its message take further fields; nothing else does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from terraflow.ports.batches import BatchStatus

RequestId = Annotated[str, Meta(pattern="^req_[0-9a-f]{32}$")]
Dollars = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]{1,6})?$", description="Decimal dollars.")]
Tokens = Annotated[int, Meta(ge=0)]


class Decision(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The decision in brief, in every governed answer; a replay names the original."""

    request_id: RequestId
    reason_code: str
    reasons: list[str]
    detail: str
    details: dict[str, Any]
    capability: str | None
    cost_usd: Dollars
    original_request_id: RequestId | UnsetType = UNSET
    original_reason_code: str | UnsetType = UNSET


class Problem(msgspec.Struct, forbid_unknown_fields=True):
    """Where something is wrong, and the rule it breaks."""

    field: str
    rule: str


class Problems(msgspec.Struct, forbid_unknown_fields=True):
    """At most three."""

    problems: Annotated[list[Problem], Meta(max_length=3)]


class Ungoverned(msgspec.Struct, forbid_unknown_fields=True):
    """What is known of a request that was not governed."""

    request_id: RequestId | None
    detail: str
    details: Problems


class OpenAIErrorFacts(msgspec.Struct, forbid_unknown_fields=True):
    """`code` is the reason code, `param` the path of the first field that is wrong."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAIRefusal(msgspec.Struct, forbid_unknown_fields=True):
    """A governed refusal in OpenAI's shape."""

    error: OpenAIErrorFacts
    terraflow: Decision


class OpenAIError(msgspec.Struct, forbid_unknown_fields=True):
    """An error from before governance in OpenAI's shape."""

    error: OpenAIErrorFacts
    terraflow: Ungoverned


class AnthropicErrorFacts(msgspec.Struct, forbid_unknown_fields=True):
    """`code` is the reason code; `details` has Anthropic's own word for it, where its clients go by that."""

    type: str
    message: str
    code: str
    details: dict[str, str] | UnsetType = UNSET


class AnthropicRefusal(msgspec.Struct, forbid_unknown_fields=True):
    """A governed refusal in Anthropic's shape."""

    type: Literal["error"]
    error: AnthropicErrorFacts
    request_id: RequestId
    terraflow: Decision


class AnthropicError(msgspec.Struct, forbid_unknown_fields=True):
    """An error from before governance in Anthropic's shape."""

    type: Literal["error"]
    error: AnthropicErrorFacts
    request_id: RequestId | None
    terraflow: Ungoverned


class ChatMessage(msgspec.Struct, kw_only=True):
    """What the model said."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | UnsetType | None = UNSET
    tool_calls: list[dict[str, Any]] | UnsetType | None = UNSET


class Choice(msgspec.Struct, kw_only=True):
    """One of the `n` answers."""

    index: int
    message: ChatMessage
    finish_reason: str | None
    logprobs: dict[str, Any] | UnsetType | None = UNSET


class ChatUsage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Tokens; cached and audio ones are parts of their totals."""

    prompt_tokens: Tokens
    completion_tokens: Tokens
    total_tokens: Tokens
    prompt_tokens_details: dict[str, Tokens]
    completion_tokens_details: dict[str, Tokens]


class ChatAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage
    terraflow: Decision
    system_fingerprint: str | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    moderation: dict[str, Any] | UnsetType = UNSET


class OutputTokensDetails(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Parts of `output_tokens`."""

    thinking_tokens: Tokens


class CacheCreation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was written to Anthropic's cache, by how long it lives."""

    ephemeral_5m_input_tokens: Tokens | UnsetType = UNSET
    ephemeral_1h_input_tokens: Tokens | UnsetType = UNSET


class MessageUsage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Tokens, as Anthropic counts them, and the service tier, if the vendor named one. What Anthropic's API says beside
    them is there if it answered."""

    input_tokens: Tokens
    cache_creation_input_tokens: Tokens
    cache_read_input_tokens: Tokens
    output_tokens: Tokens
    output_tokens_details: OutputTokensDetails | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    cache_creation: CacheCreation | UnsetType = UNSET
    inference_geo: str | UnsetType = UNSET


class StopDetails(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why Anthropic's API refused, in its own words."""

    type: Literal["refusal"]
    category: str | None
    explanation: str | None


class MessageAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str
    stop_sequence: str | None
    stop_details: StopDetails | UnsetType = UNSET
    usage: MessageUsage
    terraflow: Decision


class TokenCount(msgspec.Struct, forbid_unknown_fields=True):
    """An estimate."""

    input_tokens: Tokens


class InvocationUsage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Tokens: totals, and what parts of them were."""

    input_tokens: Tokens
    cached_input_tokens: Tokens
    cache_write_tokens: Tokens
    output_tokens: Tokens
    reasoning_tokens: Tokens


class InvocationAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`output` is text, or the value of the schema that was asked for."""

    output: Any
    finish_reason: str | None
    usage: InvocationUsage
    terraflow: Decision
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET
    refusal: str | UnsetType = UNSET


class Model(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A workload or a capability."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["workload", "capability"]
    type: Literal["model"]
    display_name: str
    created_at: str
    lifecycle: Literal["active"]


class ModelList(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All of them, in one page."""

    object: Literal["list"]
    data: list[Model]
    has_more: bool
    first_id: str | None
    last_id: str | None


class EvidenceRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A record as it is in the log; without a proof until a checkpoint covers it."""

    kind: Literal["intent", "outcome", "feedback"]
    index: Tokens
    record: dict[str, Any]
    entry: str
    inclusion_proof: str | None


class EvidenceAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was recorded of a request."""

    object: Literal["evidence"]
    request_id: RequestId
    tenant: str
    decision: dict[str, Any] | None
    outcome: dict[str, Any] | None
    feedback: dict[str, Any] | None
    records: list[EvidenceRecord]


class File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file of lines, uploaded or of a batch's results."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]
    status_details: None


class FileList(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of files."""

    object: Literal["list"]
    data: list[File]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file that was erased."""

    id: str
    object: Literal["file"]
    deleted: bool


class RequestCounts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A batch's requests."""

    total: Tokens
    completed: Tokens
    failed: Tokens


class Batch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A batch as it stands; instants are seconds since the epoch."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


class BatchList(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of batches."""

    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Cancelled(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How the request ended; null while that is not recorded."""

    object: Literal["request"]
    id: RequestId
    cancelled: bool | None
    reason_code: str | None
    cost_usd: Dollars | None


class FeedbackAnswer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The feedback as it is recorded."""

    object: Literal["feedback"]
    request_id: RequestId
    time: str
    rating: str | None
    score: int | None
    labels: list[str]
