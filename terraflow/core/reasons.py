"""Every reason code: one row a code, and the only file in which a code is spelled.

1. A code's identity is its surface and its name. Five names stand on two surfaces, and equal names compare and
   hash equal because a code is a `str`: compare codes with `is`, and key tables by codes of one surface only.
2. A row's `status` is the HTTP status of a response that ends with the code; hints have none. Where the code may
   come with another status, `second` says which and where.
3. `kind` and `status` are facts of the vocabulary that clients know already; `note` says where this plane differs.
4. `retry` is true when the same request, unchanged, may succeed after Retry-After or a short wait. It is false
   when the caller, an operator or an approver must act first, and when there is nothing to repeat.
5. `since` is the version that first raised the code, or `planned` while the part that raises it is not built.
6. `meaning` reads well as an error's message; `action` is the reader's next step. Both are constant texts, so
   neither can hold a request's content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum, unique
from typing import NamedTuple, Self


class Surface(StrEnum):
    """Where a code is met."""

    GOVERNED = "governed"
    MODEL_API = "model_api"
    CONSOLE_API = "console_api"
    LOOKUP_ROUTE = "lookup_route"
    RENDER_TEMPLATE = "render_template"


class Kind(StrEnum):
    """What a code says about a request."""

    RESPONSE = "response"
    ROUTE_EXCLUSION = "route-exclusion"
    PRODUCED_ANSWER = "produced-answer"
    ACTIVATION = "activation"
    RECORDED_ONLY = "recorded-only"
    NOT_RAISED = "not-raised"
    RESERVED = "reserved-action-broker"
    HINT = "hint"
    RENDER = "render"


class SecondStatus(NamedTuple):
    """Another HTTP status of the same code, and where it applies; None is the original response's status."""

    status: int | None
    where: str


class Reason(NamedTuple):
    """A row of the registry."""

    surface: Surface
    code: str
    status: int | None
    kind: Kind
    retry: bool
    since: str
    meaning: str
    action: str
    second: SecondStatus | None
    note: str


class _Code(StrEnum):
    """A member is the code itself, and carries its row."""

    _row: Reason

    # A member is made of its row; `str` is here for calls, `Governed(text)`, which look a member up and raise
    # ValueError when there is none, without coming here.
    def __new__(cls, row: Reason | str) -> Self:
        if isinstance(row, str):
            raise TypeError("a code is made of its row")
        member = str.__new__(cls, row.code)
        member._value_ = row.code
        member._row = row
        return member

    # Enum hashes a member's name through a Python function; a code's name is its value, so str's own hash agrees.
    __hash__ = str.__hash__


def _rows_of(surface: Surface) -> Callable[..., tuple[Reason]]:
    def row(
        code: str,
        status: int | None,
        kind: Kind,
        retry: bool,
        since: str,
        meaning: str,
        action: str,
        second: SecondStatus | None = None,
        note: str = "",
    ) -> tuple[Reason]:
        return (Reason(surface, code, status, kind, retry, since, meaning, action, second, note),)

    return row


PLANNED = "planned"
V0_1 = "0.1.0"
RETRY, STOP = True, False

# One row a paragraph: the facts on its first line, then what it means, then what to do.
# fmt: off

_row = _rows_of(Surface.GOVERNED)


@unique
class Governed(_Code):
    """How a governed request ended: in `x-terraflow-reason`, `terraflow.reason_code` and the evidence."""

    ACTION_ALLOWED = _row(
        "ACTION_ALLOWED", 200, Kind.RESERVED, STOP, PLANNED,
        "The action broker let an agent's action go ahead exactly as it was proposed.",
        "Carry the action out under the grant that came with the decision.",
    )
    ACTION_CLASS_BLOCKED = _row(
        "ACTION_CLASS_BLOCKED", 403, Kind.RESERVED, STOP, PLANNED,
        "The proposed agent action is of a class more consequential than the contract lets agents take.",
        "Drop the action or have a person take it; an agent may only once a contract that allows its class is"
        " approved.",
    )
    ACTION_DEFERRED = _row(
        "ACTION_DEFERRED", 202, Kind.RESERVED, STOP, PLANNED,
        "The broker put the agent's action off and has decided neither for nor against it.",
        "Poll the action by its id and act on a final decision only; do not propose it a second time.",
    )
    ACTION_DENIED = _row(
        "ACTION_DENIED", 403, Kind.RESERVED, STOP, PLANNED,
        "The action broker refused this agent action under the rules of the contract.",
        "Plan the task without the action; the decision's evidence names the rule that refused it.",
    )
    ACTION_MODIFIED = _row(
        "ACTION_MODIFIED", 200, Kind.RESERVED, STOP, PLANNED,
        "The broker permits the agent's action with changed parameters, not as it was proposed.",
        "Carry out the version in the response and discard the one that was proposed.",
    )
    ACTION_PENDING_APPROVAL = _row(
        "ACTION_PENDING_APPROVAL", 202, Kind.RESERVED, STOP, PLANNED,
        "The agent's action is of a class that a person must approve, and nobody has decided yet.",
        "Hold the action and poll it by its id until an approver has answered.",
    )
    APP_NOT_ENTITLED_TO_WORKLOAD = _row(
        "APP_NOT_ENTITLED_TO_WORKLOAD", 403, Kind.RESPONSE, STOP, V0_1,
        "The workload exists, but the active bundle does not entitle the calling application to it.",
        "Call a workload that GET /v1/models lists for the key, or have an operator add the entitlement to a new"
        " bundle.",
    )
    APP_UNAUTHENTICATED = _row(
        "APP_UNAUTHENTICATED", 401, Kind.RESPONSE, STOP, V0_1,
        "The request carried no API key that this plane accepts: none at all, an unknown one, or one no longer"
        " valid.",
        "Send the application's current key, either as Authorization: Bearer tf_… or as x-api-key.",
    )
    BUDGET_EXHAUSTED = _row(
        "BUDGET_EXHAUSTED", 429, Kind.RESPONSE, STOP, V0_1,
        "The worst-case cost of this request does not fit what is left of a budget: the workload's, the business"
        " unit's or the tenant's, for the hour or for the month.",
        "Wait for that budget's next hour or month (UTC) or have it raised; a lower maximum output reserves less.",
    )
    BUDGET_REQUEST_LIMIT = _row(
        "BUDGET_REQUEST_LIMIT", 429, Kind.RESPONSE, STOP, V0_1,
        "At worst, the pinned capability would cost more for this request than the contract lets one request"
        " cost.",
        "Lower the maximum output, shorten the input, or drop the pin so that a cheaper capability can serve it.",
    )
    BUDGET_THROTTLED = _row(
        "BUDGET_THROTTLED", 403, Kind.RECORDED_ONLY, STOP, PLANNED,
        "A budget set to throttle had no room, so the request gave its slot back and waited below priority P3.",
        "Give such requests a deadline with time to wait, or spread the load over the budget's window.",
        note="It stands in `terraflow.reasons` and in the evidence, never as a response's code; a request whose"
             " deadline comes before its turn ends in BUDGET_EXHAUSTED.",
    )
    BUNDLE_EXPIRED = _row(
        "BUNDLE_EXPIRED", 503, Kind.RESPONSE, STOP, V0_1,
        "The bundle of contracts and capabilities that this plane enforces has expired, so nothing may run under"
        " it.",
        "An operator signs and activates a fresh bundle; callers hold back until then.",
    )
    BUNDLE_INVALID = _row(
        "BUNDLE_INVALID", 503, Kind.RESPONSE, STOP, V0_1,
        "This plane has no active bundle whose signature and content it could verify, and without one nothing may"
        " run.",
        "An operator signs, verifies and activates a bundle with `terraflow bundle`; callers hold back until"
        " then.",
    )
    BURST_ONLY_ON_CAPACITY = _row(
        "BURST_ONLY_ON_CAPACITY", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The contract lets requests out of the private boundary only while private capacity is exhausted, and a"
        " private capability still has a free slot.",
        "Do not pin an external capability under such a contract: without a pin the free private slot is used.",
    )
    CACHE_HIT = _row(
        "CACHE_HIT", 200, Kind.PRODUCED_ANSWER, STOP, V0_1,
        "This is an earlier, validated answer of the workspace to the same request under the same contract"
        " version; no model ran, and the cost is zero.",
        "Use the answer; x-terraflow-savings-usd estimates what a call would have cost. Vary the request to get a"
        " new one.",
    )
    CANCELLED = _row(
        "CANCELLED", 409, Kind.RESPONSE, STOP, V0_1,
        "The caller gave the request up while it was still under way: it closed its connection, or cancelled the"
        " request by its id.",
        "Send a new request if the answer is wanted after all; what was used until the cancellation is charged,"
        " or the worst case where nobody can know it.",
        note="A caller that left reads no response: the code is then in the evidence alone, with the detail"
             " `caller_left`. A request that was cancelled by its id is answered with the detail `by_id`. An item of a"
             " batch that waited when its batch or the plane stopped is recorded with the detail `batch_stopped`; its"
             " batch says what became of it.",
    )
    CAPABILITY_NOT_IN_CONTRACT = _row(
        "CAPABILITY_NOT_IN_CONTRACT", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The workload's contract does not list this capability among those it allows.",
        "Pin a capability or alias that the contract names, or pin none; adding one takes an approved contract"
        " change.",
    )
    CONSEQUENCE_TIER_NOT_APPROVED = _row(
        "CONSEQUENCE_TIER_NOT_APPROVED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The workload's consequence tier is one for which this capability has not been approved.",
        "Use a capability approved for the tier, or ask the operator to have this one assessed for it.",
    )
    CONTENT_FILTERED = _row(
        "CONTENT_FILTERED", 400, Kind.RESPONSE, STOP, V0_1,
        "The model provider's own content filter stopped the request or its answer.",
        "Reword the content: the same text meets the same filter. The evidence names the capability that filtered"
        " it.",
    )
    CONTENT_RULE_VIOLATION = _row(
        "CONTENT_RULE_VIOLATION", 422, Kind.RESPONSE, STOP, PLANNED,
        "The model's answer broke a content rule that the contract marks as blocking, and was withheld.",
        "Ask in a way that keeps the answer within the rule, or have the contract's owner review the rule.",
    )
    CONTEXT_WINDOW_EXCEEDED = _row(
        "CONTEXT_WINDOW_EXCEEDED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The input and the longest answer asked for do not both fit this capability's context window; for paid"
        " capabilities each byte of the input counts as a token.",
        "Shorten the conversation, ask for fewer output tokens, or use a capability with a larger window.",
    )
    CONTRACT_NOT_EXECUTABLE = _row(
        "CONTRACT_NOT_EXECUTABLE", 403, Kind.RESPONSE, STOP, V0_1,
        "The workload's contract is not in force: it lacks approval, has not begun, has ended, or is missing from"
        " the active bundle.",
        "The contract's owner has a second person approve it and an operator activates a bundle that holds it.",
    )
    DATA_CLASS_EXCEEDS_CAPABILITY = _row(
        "DATA_CLASS_EXCEEDS_CAPABILITY", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The request's data class is higher than the highest that this capability may receive.",
        "Drop the pin so that a capability cleared for the class is used, or take the sensitive part out.",
    )
    DATA_CLASS_NOT_PERMITTED = _row(
        "DATA_CLASS_NOT_PERMITTED", 403, Kind.RESPONSE, STOP, V0_1,
        "The contract does not accept the request's data class, which is the higher of declared and found, or a"
        " sensitive type in it.",
        "Remove what is sensitive (images, audio and most files count as restricted) or call a workload that"
        " accepts it.",
    )
    DATA_CLASS_UNDECLARED = _row(
        "DATA_CLASS_UNDECLARED", 403, Kind.RESPONSE, STOP, V0_1,
        "The contract wants every caller to declare a data class, and this request declared none.",
        "Send X-TerraFlow-Data-Class with each request of the workload: public, internal, confidential or"
        " restricted.",
    )
    DATA_TERMS_RETENTION = _row(
        "DATA_TERMS_RETENTION", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "By its terms the provider may keep request data for longer than the contract tolerates.",
        "Use a capability with shorter retention; if the provider's terms changed, the operator updates the"
        " bundle.",
    )
    DATA_TERMS_TRAINING = _row(
        "DATA_TERMS_TRAINING", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The provider's terms permit training on request data, which the contract rules out.",
        "Use a capability whose provider does not train on customers' data, or leave the choice to the plane.",
    )
    DEADLINE_EXPIRED = _row(
        "DEADLINE_EXPIRED", 504, Kind.RESPONSE, RETRY, V0_1,
        "The request's deadline passed, in the queue or at the provider, before its answer was complete.",
        "Allow more time with X-TerraFlow-Deadline-Ms, ask for a shorter answer, or try when the plane is less"
        " busy.",
    )
    EVIDENCE_UNAVAILABLE = _row(
        "EVIDENCE_UNAVAILABLE", 503, Kind.RESPONSE, RETRY, V0_1,
        "The evidence could not be made durable, so the request was not run or its finished answer was withheld.",
        "Try again after a pause; the operator looks at the plane's disk and log when it lasts.",
    )
    EXTERNAL_EGRESS_NOT_ALLOWED = _row(
        "EXTERNAL_EGRESS_NOT_ALLOWED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "This capability lies outside the private boundary, and the contract keeps the request inside.",
        "Pin a private capability or none; letting requests out needs a contract whose egress is burst or"
        " allowed.",
    )
    GRANT_INVALID = _row(
        "GRANT_INVALID", 401, Kind.RESERVED, STOP, PLANNED,
        "The grant presented for an agent action is absent, out of date, or does not verify.",
        "Ask the broker for a new grant for this action and use it before it runs out.",
    )
    IDEMPOTENCY_CONFLICT = _row(
        "IDEMPOTENCY_CONFLICT", 409, Kind.RESPONSE, STOP, V0_1,
        "The application first used this Idempotency-Key for another request: the endpoint, workload, declaration"
        " or body differs.",
        "Give each distinct request a key of its own, and repeat a key only with the request it was made for.",
    )
    IDEMPOTENCY_KEY_REQUIRED = _row(
        "IDEMPOTENCY_KEY_REQUIRED", 400, Kind.RESPONSE, STOP, V0_1,
        "The contract demands an Idempotency-Key on every request of this workload, and none came.",
        "Make a unique key for each piece of work and send it as Idempotency-Key, the same one on each retry.",
    )
    IDEMPOTENCY_REPLAY = _row(
        "IDEMPOTENCY_REPLAY", 409, Kind.RESPONSE, STOP, V0_1,
        "The key's first request has already ended: its stored outcome is given again, and nothing ran or was"
        " charged.",
        "Treat it as the original response; original_reason_code and original_request_id say how and where that"
        " ended.",
        second=SecondStatus(None, "every replay has the status of the original response"),
    )
    IDEMPOTENCY_REPLAY_NO_CONTENT = _row(
        "IDEMPOTENCY_REPLAY_NO_CONTENT", 409, Kind.RESPONSE, STOP, V0_1,
        "The key's first request may have been answered, but there is no answer of it to give again: it was erased"
        " since, or never recorded; the response names that request.",
        "Use a new key if an answer is still needed: the request then runs, and is charged, anew.",
    )
    INPUT_TOO_LARGE = _row(
        "INPUT_TOO_LARGE", 413, Kind.RESPONSE, STOP, V0_1,
        "The request is larger than what the plane scans for sensitive data, and nothing unscanned goes to a"
        " model.",
        "Send less text or split it over several requests; the bound is a setting that the operator knows.",
    )
    INTERNAL_ERROR = _row(
        "INTERNAL_ERROR", 500, Kind.RESPONSE, RETRY, V0_1,
        "The plane met a fault that it did not foresee; what is known to be used was charged, the rest was"
        " released.",
        "Try once more, then give the request id to the operator, whose evidence holds the failure.",
    )
    JURISDICTION_NOT_ALLOWED = _row(
        "JURISDICTION_NOT_ALLOWED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "This capability processes data in a jurisdiction that the contract does not list.",
        "Pin a capability that runs where the contract allows, or pin none so that such a one is found.",
    )
    LIFECYCLE_NOT_APPROVED = _row(
        "LIFECYCLE_NOT_APPROVED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The capability's lifecycle state is not one in which it may serve requests.",
        "Move to an approved capability; the operator can have this one approved and put into the next bundle.",
    )
    MODEL_FAMILY_NOT_ALLOWED = _row(
        "MODEL_FAMILY_NOT_ALLOWED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The contract names the model families that may serve it, and this capability's is not among them.",
        "Pin a capability from a family that the contract names; widening the list is a change of the contract.",
    )
    NO_POLICY_PERMITTED_ROUTE = _row(
        "NO_POLICY_PERMITTED_ROUTE", 403, Kind.RESPONSE, STOP, V0_1,
        "The policy table excludes every capability of the active bundle for this request.",
        "Read each capability's exclusion at GET /v1/evidence/{request_id}; then change the data, tools or"
        " workload.",
    )
    NO_ROUTE_WITHIN_REQUEST_LIMIT = _row(
        "NO_ROUTE_WITHIN_REQUEST_LIMIT", 429, Kind.RESPONSE, STOP, V0_1,
        "At worst, each permitted capability would cost more for this request than the contract lets one request"
        " cost.",
        "Reduce the maximum output or the input, or have the contract's limit raised; waiting does not help.",
    )
    OUTPUT_REDACTED = _row(
        "OUTPUT_REDACTED", 200, Kind.PRODUCED_ANSWER, STOP, PLANNED,
        "The model's answer held sensitive data, which was masked before the answer went out.",
        "Work with the masked text: the original cannot be had. Ask for less if the gaps matter.",
    )
    PERMITTED = _row(
        "PERMITTED", 200, Kind.PRODUCED_ANSWER, STOP, V0_1,
        "Policy allowed the request, and the chosen capability answered it without incident.",
        "Use the answer; x-terraflow-capability says who gave it, x-terraflow-cost-usd for how much.",
    )
    PER_TYPE_UNCALIBRATED = _row(
        "PER_TYPE_UNCALIBRATED", 200, Kind.PRODUCED_ANSWER, STOP, PLANNED,
        "The workload routes by type of question and has no calibrated score for this type, so its default tier"
        " answered.",
        "Use the answer; to have the type routed, an operator benchmarks it and has the calibration signed.",
    )
    POLICY_EVALUATION_ERROR = _row(
        "POLICY_EVALUATION_ERROR", 403, Kind.RESPONSE, STOP, V0_1,
        "The policy could not be evaluated for this request, and an evaluation that fails denies.",
        "Give the request id to the operator: the bundle or the plane has a fault that a repeat will meet again.",
    )
    PREFIX_CACHE_SHARED = _row(
        "PREFIX_CACHE_SHARED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The request is confidential or restricted, and this capability's prompt cache serves several tenants; no"
        " contract can waive this rule.",
        "Use a private capability, or one whose prompt cache belongs to the tenant alone.",
    )
    PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY = _row(
        "PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY", 403, Kind.ACTIVATION, STOP, V0_1,
        "A capability declared private has an endpoint whose address is outside the configured private networks.",
        "The operator corrects the endpoint or the list of networks; until then another capability must serve.",
        note="At activation it is a detail of BUNDLE_REJECTED. It is also asked for each route of a request,"
             " since a name may resolve elsewhere later; there it is a route's exclusion, and the response when"
             " that route is pinned.",
    )
    PROVIDER_DISABLED = _row(
        "PROVIDER_DISABLED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "This capability is switched off, or lacks what it needs to be used: its credential, or a known price.",
        "Use another capability or no pin. The detail says which it is; an operator can put it right.",
    )
    PROVIDER_ERROR_RECOVERED = _row(
        "PROVIDER_ERROR_RECOVERED", 200, Kind.PRODUCED_ANSWER, STOP, V0_1,
        "At least one provider call failed on the way, and a retry or another permitted capability then answered.",
        "Use the answer; when this becomes frequent, the attempts in the evidence show which provider is failing.",
    )
    PROVIDER_ERROR_UNRECOVERED = _row(
        "PROVIDER_ERROR_UNRECOVERED", 503, Kind.RESPONSE, RETRY, V0_1,
        "All attempts failed: the retries, the contract's fallbacks, and its safe path if it has one.",
        "Try again after a pause; the evidence gives the operator each attempt's class of failure.",
    )
    PROVIDER_REJECTED_REQUEST = _row(
        "PROVIDER_REJECTED_REQUEST", 400, Kind.RESPONSE, STOP, V0_1,
        "The provider refused the messages or tool schemas as invalid, no permitted route takes one of the"
        " request's fields (detail FIELD_NOT_SUPPORTED), the schema asked for is no JSON Schema that can be checked"
        " (RESPONSE_SCHEMA_INVALID), or the contract's reasoning budget does not fit the output limit"
        " (REASONING_BUDGET_EXCEEDS_OUTPUT).",
        "Correct the messages or schemas, or leave out the fields that the details name; for the reasoning budget,"
        " raise the maximum output.",
    )
    PROVIDER_UNHEALTHY = _row(
        "PROVIDER_UNHEALTHY", 403, Kind.ROUTE_EXCLUSION, RETRY, V0_1,
        "Probes or recent calls of this capability fail too often for it to be given requests.",
        "Wait for it to come back, or drop the pin so that a healthy capability serves the request.",
    )
    QUEUE_SHED = _row(
        "QUEUE_SHED", 429, Kind.RESPONSE, RETRY, V0_1,
        "The plane has reached its bound on what may run and wait, and turned the request away unworked.",
        "Back off for as long as Retry-After says, with jitter; an operator who sees this steadily adds capacity.",
        note="On files and batches the detail `batches` says that the tenant has as many open batches as it may, that"
             " no more may be stored, or that enough of the tenant's uploads wait.",
    )
    RATE_LIMITED = _row(
        "RATE_LIMITED", 429, Kind.RESPONSE, RETRY, V0_1,
        "The workload, or the workspace at its paid providers (detail provider_rpm), has used up this minute's"
        " requests.",
        "Send again once Retry-After has passed and even out bursts; a higher rate is a change of the contract.",
    )
    REVIEW_EXPIRED = _row(
        "REVIEW_EXPIRED", 410, Kind.RESPONSE, STOP, PLANNED,
        "The time to review the held answer ran out without a decision, and the answer was erased.",
        "Make the original request anew if its answer is still wanted; the workload's owner can add reviewers.",
    )
    REVIEW_PENDING = _row(
        "REVIEW_PENDING", 202, Kind.RESPONSE, STOP, PLANNED,
        "The answer is ready but held until a reviewer of the workload releases it.",
        "Keep the id in x-terraflow-review-id and poll GET /v1/reviews/{id}; do not make the request again.",
        second=SecondStatus(
            200, "/v1/chat/completions and /v1/messages, whose answer is then a placeholder that names the review"
        ),
    )
    REVIEW_REJECTED = _row(
        "REVIEW_REJECTED", 422, Kind.RESPONSE, STOP, PLANNED,
        "A reviewer decided against the held answer, and it stays withheld for good.",
        "Ask differently, or take the decision up with the workload's owner: an unchanged request is held again.",
    )
    RUN_BUDGET_EXHAUSTED = _row(
        "RUN_BUDGET_EXHAUSTED", 429, Kind.RESPONSE, STOP, PLANNED,
        "The run that this request belongs to has spent the budget that all its steps share.",
        "End the run, or begin another whose budget fits its steps; more requests of this one are refused too.",
    )
    SAFE_PATH_USED = _row(
        "SAFE_PATH_USED", 200, Kind.PRODUCED_ANSWER, STOP, V0_1,
        "Neither the planned capability nor its fallbacks could answer, so the contract's safe path did, under"
        " the same policy.",
        "Use the answer, knowing that a more modest model may have written it; the evidence says what failed"
        " before.",
    )
    SENSITIVE_TYPE_NOT_ALLOWED_ON_CAPABILITY = _row(
        "SENSITIVE_TYPE_NOT_ALLOWED_ON_CAPABILITY", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The request holds, by scan or by declaration, a sensitive type (pii, pci, phi or credentials) that this"
        " capability may not be sent.",
        "Take the sensitive values out, or pin nothing so that a capability cleared for the type is used.",
    )
    SPEND_CEILING_REACHED = _row(
        "SPEND_CEILING_REACHED", 429, Kind.RESPONSE, STOP, PLANNED,
        "The spend guard refused a paid call: the workspace's lifetime allowance is used up (detail"
        " workspace_allowance) or the plane's paid calls reached their ceiling for the month (detail"
        " plane_ceiling).",
        "An operator tops the allowance up; a ceiling lifts with the next UTC month, which Retry-After counts"
        " down to.",
    )
    SPEND_GUARD_UNAVAILABLE = _row(
        "SPEND_GUARD_UNAVAILABLE", 503, Kind.RESPONSE, RETRY, PLANNED,
        "The spend guard gave no usable answer in 250 milliseconds, and no paid call is made without its consent.",
        "Try again shortly, or use a private capability, which needs no consent; the operator checks the guard.",
    )
    SPEND_VELOCITY_TRIPPED = _row(
        "SPEND_VELOCITY_TRIPPED", 429, Kind.RESPONSE, RETRY, PLANNED,
        "The workload spent so fast within a minute that its breaker opened and holds spending back for now.",
        "Look for a loop in the calling program, pause for Retry-After, then go on more slowly.",
    )
    TENANT_MISMATCH = _row(
        "TENANT_MISMATCH", 403, Kind.RESPONSE, STOP, V0_1,
        "The workload is the caller's own, yet its contract names another tenant and so cannot govern the"
        " request.",
        "Tell the operator: the contract must be corrected and a new bundle activated; no change of the request"
        " helps.",
    )
    TENANT_QUEUE_LIMIT = _row(
        "TENANT_QUEUE_LIMIT", 429, Kind.RESPONSE, RETRY, V0_1,
        "This tenant has as many requests running and waiting as one tenant is allowed to have.",
        "Pause for Retry-After and keep fewer requests in flight; the tenant's own load is the cause.",
    )
    TIER_NOT_AVAILABLE = _row(
        "TIER_NOT_AVAILABLE", 503, Kind.NOT_RAISED, RETRY, V0_1,
        "No capability is left for this request, and for at least one of them failing health was the only"
        " obstacle.",
        "Repeat the request unchanged after Retry-After; the operator looks at the health of the providers.",
        note="The vocabulary lists it as not raised. This plane does raise it, as a response.",
    )
    TOOLS_UNSUPPORTED = _row(
        "TOOLS_UNSUPPORTED", 403, Kind.ROUTE_EXCLUSION, STOP, V0_1,
        "The request offers tools, and this capability has no support for tool calls.",
        "Leave the tools out, or use a capability that can call tools.",
    )
    TOOL_NOT_PERMITTED = _row(
        "TOOL_NOT_PERMITTED", 403, Kind.RESPONSE, STOP, V0_1,
        "The request offers the model a tool whose name the contract does not list.",
        "Offer listed tools only; the contract's owner can add one through an approved change.",
    )
    UNKNOWN_WORKLOAD = _row(
        "UNKNOWN_WORKLOAD", 403, Kind.RESPONSE, STOP, V0_1,
        "The workspace has no workload of the name that X-TerraFlow-Workload, or an invocation's workload field,"
        " gives.",
        "Take a name from GET /v1/models, or send none to use the application's default workload.",
        second=SecondStatus(404, "POST /v1/batches, as a model API error without a reason header"),
    )
    VALIDATION_BLOCKED = _row(
        "VALIDATION_BLOCKED", 422, Kind.RESPONSE, STOP, V0_1,
        "The model's answer failed the checks that the contract or the request asks for, repair did not help, and"
        " it was withheld.",
        "Ask for something simpler or loosen the schema: a plain repeat costs another call and may well fail"
        " alike.",
    )
    VALIDATION_ESCALATED = _row(
        "VALIDATION_ESCALATED", 200, Kind.PRODUCED_ANSWER, STOP, PLANNED,
        "A first answer failed a check, so the request ran again one tier up, and that answer is valid.",
        "Use the answer; both calls were paid for, and frequent escalation suggests a higher default tier.",
    )
    VALIDATION_REPAIRED = _row(
        "VALIDATION_REPAIRED", 200, Kind.PRODUCED_ANSWER, STOP, V0_1,
        "A first answer did not meet the output schema, and a second call repaired it.",
        "Use the answer, which is valid; a simpler schema or prompt saves the second call.",
    )


_row = _rows_of(Surface.MODEL_API)


@unique
class ModelApi(_Code):
    """Errors of `/v1` about a request that was not governed: in the error body only, never in a reason header."""

    BATCH_NOT_FOUND = _row(
        "BATCH_NOT_FOUND", 404, Kind.RESPONSE, STOP, V0_1,
        "The calling application has no batch of this id; an expired batch, or another application's, looks the"
        " same.",
        "Use the id that creating the batch returned, with a key of the application that created it.",
    )
    BATCH_REQUIRES_P3 = _row(
        "BATCH_REQUIRES_P3", 422, Kind.RESPONSE, STOP, V0_1,
        "Batches run behind everything else, so only a workload of priority P3 may be given one.",
        "Address the batch to a P3 workload, or make its calls one at a time.",
    )
    DUPLICATE_CUSTOM_ID = _row(
        "DUPLICATE_CUSTOM_ID", 422, Kind.RESPONSE, STOP, V0_1,
        "Several entries of the batch carry one custom_id, so their results could not be told apart.",
        "Give every entry its own custom_id and submit the batch again: none of it was accepted.",
    )
    EVIDENCE_NOT_FOUND = _row(
        "EVIDENCE_NOT_FOUND", 404, Kind.RESPONSE, STOP, V0_1,
        "There is no evidence under this request id that the calling application may read.",
        "Compare the id with the response's x-terraflow-request-id, and use a key of the application that sent"
        " it.",
    )
    INVALID_DATA_CLASS = _row(
        "INVALID_DATA_CLASS", 400, Kind.RESPONSE, STOP, V0_1,
        "The data class that was declared is none of public, internal, confidential and restricted.",
        "Set X-TerraFlow-Data-Class, or an invocation's data_class, to exactly one of the four words; nothing of this"
        " request ran or was charged.",
    )
    INVALID_DEADLINE = _row(
        "INVALID_DEADLINE", 400, Kind.RESPONSE, STOP, V0_1,
        "The deadline that was declared is not a whole number of milliseconds above zero.",
        "Set X-TerraFlow-Deadline-Ms, or an invocation's deadline_ms, to digits only, such as 30000 for half a minute,"
        " or omit it to get the workload's default.",
    )
    INVALID_REQUEST = _row(
        "INVALID_REQUEST", 400, Kind.RESPONSE, STOP, V0_1,
        "The request could not be read: its size, its JSON, its shape or one of its headers is wrong.",
        "Mend what the error lists: up to three field paths and the rule each breaks, never the values sent.",
    )
    INVALID_SENSITIVE_TYPE = _row(
        "INVALID_SENSITIVE_TYPE", 400, Kind.RESPONSE, STOP, V0_1,
        "A sensitive type that was declared does not exist.",
        "List any of pii, pci, phi and credentials, separated by commas in X-TerraFlow-Sensitive-Types, or as an array"
        " in an invocation's sensitive_types, or omit it.",
    )
    METRICS_TOKEN_REQUIRED = _row(
        "METRICS_TOKEN_REQUIRED", 403, Kind.RESPONSE, STOP, V0_1,
        "The plane gives metrics to holders of a bearer token only, and its operator has set no such token.",
        "The operator sets a metrics token and gives it to the scraper; applications have no use for this path.",
    )
    METRICS_UNAUTHORIZED = _row(
        "METRICS_UNAUTHORIZED", 401, Kind.RESPONSE, STOP, V0_1,
        "The scrape of the metrics came with no bearer token, or with one that the plane does not know.",
        "Configure the scraper with the metrics token of this plane's settings.",
    )
    NOT_FOUND = _row(
        "NOT_FOUND", 404, Kind.RESPONSE, STOP, V0_1,
        "The plane serves nothing at this path with this method: a model or a file that the path names is none of"
        " the calling application's, or there is no such path.",
        "Check the id, the path and the method; OpenAI's clients want a base URL that ends in /v1, Anthropic's one"
        " without it.",
    )
    REQUEST_NOT_FOUND = _row(
        "REQUEST_NOT_FOUND", 404, Kind.RESPONSE, STOP, V0_1,
        "The calling application has no request of this id to cancel or to give feedback on.",
        "Take the id from x-terraflow-request-id, and use a key of the application that sent the request.",
    )
    REVIEW_NOT_FOUND = _row(
        "REVIEW_NOT_FOUND", 404, Kind.RESPONSE, STOP, V0_1,
        "The calling application has no held answer under this review id.",
        "Use the value of x-terraflow-review-id from the held response, unchanged.",
    )


_row = _rows_of(Surface.CONSOLE_API)


@unique
class Console(_Code):
    """Errors of `/api`, which the console calls."""

    ACTIVATION_REJECTED = _row(
        "ACTIVATION_REJECTED", 409, Kind.RESPONSE, STOP, PLANNED,
        "The bundle that was to switch a capability off in an emergency did not pass activation.",
        "Read why in the message; the bundle before it still holds, so the capability is still on.",
    )
    BUDGET_INVALID = _row(
        "BUDGET_INVALID", 422, Kind.RESPONSE, STOP, PLANNED,
        "The budget's new values cannot be used: an amount is negative, malformed or out of range.",
        "Enter amounts as plain decimals of dollars, zero or more, and save again.",
    )
    BUNDLE_REJECTED = _row(
        "BUNDLE_REJECTED", 409, Kind.RESPONSE, STOP, PLANNED,
        "The bundle made from this change did not pass activation, so the one before it stays in force.",
        "Mend what the details name, in the contract or the capability, and submit the change once more.",
    )
    CALIBRATION_REFUSED = _row(
        "CALIBRATION_REFUSED", 409, Kind.RESPONSE, STOP, PLANNED,
        "The benchmark's result does not pass the gates that its charter sets for a change of tiers or scores.",
        "See in the details which gate failed, and gather what it asks for before calibrating again.",
    )
    CHARTER_REQUIRED = _row(
        "CHARTER_REQUIRED", 409, Kind.RESPONSE, STOP, PLANNED,
        "A calibration rests on a benchmark charter that is complete and signed, and there is none.",
        "Fill in the charter, have each of its roles sign it, then come back to the calibration.",
    )
    CONFLICT = _row(
        "CONFLICT", 409, Kind.RESPONSE, STOP, PLANNED,
        "Somebody else changed the contract in the meantime, or its state does not admit this change.",
        "Load the contract as it is now and make the change on top of that.",
    )
    CONTRACT_INVALID = _row(
        "CONTRACT_INVALID", 422, Kind.RESPONSE, STOP, PLANNED,
        "The contract breaks one or more of the rules that every contract must keep.",
        "Correct each field that the details point to, then save the draft again.",
    )
    CSRF_HEADER_REQUIRED = _row(
        "CSRF_HEADER_REQUIRED", 403, Kind.RESPONSE, STOP, PLANNED,
        "A call that changes something lacked the header X-TerraFlow-Console: 1, which other sites cannot make a"
        " browser send.",
        "Add the header to every changing call of a script; the console's pages send it themselves.",
    )
    EDIT_NOT_APPLICABLE = _row(
        "EDIT_NOT_APPLICABLE", 422, Kind.RESPONSE, STOP, PLANNED,
        "The decision came as an edit, but the item holds no answer to edit or the new text is missing.",
        "Send the edited text along, or decide by approving or rejecting.",
    )
    EDIT_TOO_LARGE = _row(
        "EDIT_TOO_LARGE", 422, Kind.RESPONSE, STOP, PLANNED,
        "The text that a reviewer put in place of the answer is longer than an edit may be.",
        "Cut the text down to the size that the details give, and decide again.",
    )
    EVENT_NOT_FOUND = _row(
        "EVENT_NOT_FOUND", 404, Kind.RESPONSE, STOP, PLANNED,
        "The workspace's evidence log has no event at this sequence number.",
        "Take a number from the list of events; those beyond the newest do not exist yet.",
    )
    INVALID_CREDENTIALS = _row(
        "INVALID_CREDENTIALS", 401, Kind.RESPONSE, STOP, PLANNED,
        "The username and the password do not belong together; which one is wrong is not told.",
        "Check both and sign in again, slowly: many failures in a row are throttled.",
    )
    INVALID_CURSOR = _row(
        "INVALID_CURSOR", 422, Kind.RESPONSE, STOP, PLANNED,
        "The before cursor of the review queue is none that an earlier page gave out.",
        "Pass on next_before exactly as received, or start from the newest page by leaving before out.",
    )
    INVALID_DIMENSION = _row(
        "INVALID_DIMENSION", 422, Kind.RESPONSE, STOP, PLANNED,
        "Costs cannot be grouped by the dimension that was asked for, because there is none of that name.",
        "Group by a dimension from the message's list.",
    )
    INVALID_ERROR_CLASS = _row(
        "INVALID_ERROR_CLASS", 400, Kind.RESPONSE, STOP, PLANNED,
        "The failure to be injected is of a class that simulated capabilities do not know.",
        "Pick a class from the console's menu of failures.",
    )
    INVALID_PERIOD = _row(
        "INVALID_PERIOD", 422, Kind.RESPONSE, STOP, PLANNED,
        "The period of the cost export runs backwards or covers more than 366 days.",
        "Put the earlier date first and export longer spans in parts.",
    )
    INVALID_REQUEST = _row(
        "INVALID_REQUEST", 400, Kind.RESPONSE, STOP, PLANNED,
        "The body of this console call is not JSON of the expected shape, or fields of an invite's redemption are"
        " wrong.",
        "Correct the fields listed, three at the most; what was entered is not repeated in the error.",
    )
    INVALID_REVIEW_STATE = _row(
        "INVALID_REVIEW_STATE", 422, Kind.RESPONSE, STOP, PLANNED,
        "The review queue was filtered by a state that no review can be in.",
        "Filter by a state from the details, or show the queue unfiltered.",
    )
    INVALID_ROLE = _row(
        "INVALID_ROLE", 400, Kind.RESPONSE, STOP, PLANNED,
        "The signature was given for a role that this charter does not provide for.",
        "Sign for one of the charter's own roles; the message names them.",
    )
    INVALID_TRANSITION = _row(
        "INVALID_TRANSITION", 409, Kind.RESPONSE, STOP, PLANNED,
        "The charter or calibration is in a state from which this step cannot be taken.",
        "Look at its present state and take the step that follows from there.",
    )
    INVITE_INVALID = _row(
        "INVITE_INVALID", 410, Kind.RESPONSE, STOP, PLANNED,
        "The invite cannot be redeemed; whether it is unknown, used, revoked or too old is deliberately not told.",
        "Ask whoever sent the invite, a workspace admin or the operator, to issue another.",
    )
    LOGIN_BUSY = _row(
        "LOGIN_BUSY", 429, Kind.RESPONSE, RETRY, PLANNED,
        "As many passwords as the plane verifies at a time are being verified just now.",
        "Sign in again a few seconds later; the attempt does not count as a failure.",
    )
    LOGIN_THROTTLED = _row(
        "LOGIN_THROTTLED", 429, Kind.RESPONSE, RETRY, PLANNED,
        "Within 15 minutes too many sign-ins or redemptions failed: 10 for one username, or for one address that"
        " redeems invites, or 50 from one address in all.",
        "Let the 15 minutes pass before the next attempt; an admin can see whether somebody else is guessing.",
    )
    NOTE_TOO_LONG = _row(
        "NOTE_TOO_LONG", 422, Kind.RESPONSE, STOP, PLANNED,
        "The note attached to a review decision has more characters than a note may have.",
        "Say it more briefly, or keep the long form elsewhere and refer to it.",
    )
    NOT_FOUND = _row(
        "NOT_FOUND", 404, Kind.RESPONSE, STOP, PLANNED,
        "What the path names, such as a contract, charter or scenario, does not exist in this workspace.",
        "Go back to the list that it should be in and open it from there.",
    )
    PASSWORD_TOO_LONG = _row(
        "PASSWORD_TOO_LONG", 400, Kind.RESPONSE, STOP, PLANNED,
        "The new password has more than 1024 characters, which is the most that is hashed.",
        "Take a password of 12 to 1024 characters; a long passphrase fits easily.",
    )
    PASSWORD_TOO_SHORT = _row(
        "PASSWORD_TOO_SHORT", 400, Kind.RESPONSE, STOP, PLANNED,
        "The new password has fewer than the 12 characters that every password needs.",
        "Make it longer, for example with several unrelated words.",
    )
    PERMISSION_DENIED = _row(
        "PERMISSION_DENIED", 403, Kind.RESPONSE, STOP, PLANNED,
        "None of the signed-in user's roles includes the right to do this.",
        "Have somebody with the right role do it, or ask an admin of the workspace for the role.",
    )
    PROOF_QUESTIONS_MALFORMED = _row(
        "PROOF_QUESTIONS_MALFORMED", 422, Kind.RESPONSE, STOP, PLANNED,
        "The file of rehearsed questions on this plane breaks its schema or holds a type that must not be shown.",
        "The operator has the benchmark command write the file afresh; asking spent nothing.",
    )
    PROOF_QUESTIONS_UNAVAILABLE = _row(
        "PROOF_QUESTIONS_UNAVAILABLE", 404, Kind.RESPONSE, STOP, PLANNED,
        "This plane has no file of rehearsed questions: none is configured, or the one configured is gone.",
        "Ask in free text, or have the operator install the file that the benchmark command writes.",
    )
    PROOF_QUESTION_NOT_FOUND = _row(
        "PROOF_QUESTION_NOT_FOUND", 404, Kind.RESPONSE, STOP, PLANNED,
        "None of the rehearsed questions that may be asked by id has this id.",
        "Choose from the questions that the page lists, or type one of your own.",
    )
    PROOF_REPLAY_MALFORMED = _row(
        "PROOF_REPLAY_MALFORMED", 422, Kind.RESPONSE, STOP, PLANNED,
        "The file with the recorded benchmark run on this plane does not follow its schema.",
        "The operator copies the file again from the benchmark run that made it.",
    )
    PROOF_REPLAY_UNAVAILABLE = _row(
        "PROOF_REPLAY_UNAVAILABLE", 404, Kind.RESPONSE, STOP, PLANNED,
        "This plane has no recorded benchmark run to show: its folder is not configured or lacks the file.",
        "The operator puts the recording in place and names its folder in the settings.",
    )
    PUBLIC_BASE_URL_UNSET = _row(
        "PUBLIC_BASE_URL_UNSET", 503, Kind.RESPONSE, STOP, PLANNED,
        "The plane has not been told its public address, which snippets and invite links must contain.",
        "The operator sets the public base URL in the configuration and restarts the plane.",
    )
    RELEASE_NOT_DECIDABLE = _row(
        "RELEASE_NOT_DECIDABLE", 409, Kind.RESPONSE, STOP, PLANNED,
        "The release is not open to this person's decision: it was decided, overtaken by a newer one, became"
        " unreadable, or was imported by the same person.",
        "Look at its state again; a release must be approved by someone other than its importer.",
    )
    RELEASE_REJECTED = _row(
        "RELEASE_REJECTED", 409, Kind.RESPONSE, STOP, PLANNED,
        "The vendor's release was turned away: its signatures do not verify, it is older than the one approved,"
        " or this plane takes none.",
        "The details say which; get the current release from the vendor. The approved one stays in force.",
    )
    RELEASE_TOO_LARGE = _row(
        "RELEASE_TOO_LARGE", 413, Kind.RESPONSE, STOP, PLANNED,
        "The upload is over 4 MiB, which no release is, and reading it was broken off.",
        "Make sure that the chosen file is the release and not an archive around it.",
    )
    REQUEST_NOT_FOUND = _row(
        "REQUEST_NOT_FOUND", 404, Kind.RESPONSE, STOP, PLANNED,
        "The workspace has no record of a governed request with this id.",
        "Copy the whole id from the response's x-terraflow-request-id or from the list of requests.",
    )
    REVIEWER_NOT_ASSIGNED = _row(
        "REVIEWER_NOT_ASSIGNED", 403, Kind.RESPONSE, STOP, PLANNED,
        "The item's workload has reviewer groups, and the signed-in user is in none of them.",
        "Leave the item to its group, or have an admin add the user to one.",
    )
    REVIEW_CONTENT_UNAVAILABLE = _row(
        "REVIEW_CONTENT_UNAVAILABLE", 404, Kind.RESPONSE, STOP, PLANNED,
        "There is no text to show for this review: it never had any, or the text has been erased.",
        "Reject the item or let it lapse; without its text it cannot be released.",
    )
    REVIEW_EXPIRED = _row(
        "REVIEW_EXPIRED", 410, Kind.RESPONSE, STOP, PLANNED,
        "This item can no longer be decided, for its time in the queue is over and the held text erased.",
        "Go on to the next item; the application that asked can make its request afresh.",
    )
    REVIEW_NOT_FOUND = _row(
        "REVIEW_NOT_FOUND", 404, Kind.RESPONSE, STOP, PLANNED,
        "The workspace's review queue has never had an item of this id.",
        "Open the item from the queue instead of from a stored address.",
    )
    REVIEW_NOT_PENDING = _row(
        "REVIEW_NOT_PENDING", 409, Kind.RESPONSE, STOP, PLANNED,
        "Another reviewer was faster: a decision on this item is already recorded.",
        "Refresh the queue to see the decision; it stands and cannot be replaced.",
    )
    ROLE_PRESET_INVALID = _row(
        "ROLE_PRESET_INVALID", 400, Kind.RESPONSE, STOP, PLANNED,
        "Colleagues are invited with a preset of roles, and the one in the request does not exist.",
        "Invite as approver, auditor, finops or builder.",
    )
    SCENARIO_IN_PROGRESS = _row(
        "SCENARIO_IN_PROGRESS", 409, Kind.RESPONSE, RETRY, PLANNED,
        "Scenarios run one at a time, and one that was started before is still running.",
        "Wait until it is done, or watch it, before starting the next.",
    )
    SEPARATION_OF_DUTIES = _row(
        "SEPARATION_OF_DUTIES", 409, Kind.RESPONSE, STOP, PLANNED,
        "Author and approver are the same person here, and they must be two.",
        "Hand the approval to somebody else who has the approver role.",
    )
    SESSION_EXPIRED = _row(
        "SESSION_EXPIRED", 401, Kind.RESPONSE, STOP, PLANNED,
        "The console session has reached the end of its time and was closed.",
        "Sign in to begin a new session; unsaved input on the page can be sent after that.",
    )
    SESSION_INVALID = _row(
        "SESSION_INVALID", 401, Kind.RESPONSE, STOP, PLANNED,
        "The session token that the browser sent belongs to no session of this plane.",
        "Clear the cookie if it persists, and sign in afresh.",
    )
    SESSION_REQUIRED = _row(
        "SESSION_REQUIRED", 401, Kind.RESPONSE, STOP, PLANNED,
        "This part of the console API answers signed-in users only, and the call had no session.",
        "Sign in through the console, and let scripts keep its session cookie.",
    )
    SESSION_REVOKED = _row(
        "SESSION_REVOKED", 401, Kind.RESPONSE, STOP, PLANNED,
        "The session was ended before its time, by signing out or because the user was disabled.",
        "Open a new session, or ask an admin whether the account is still enabled.",
    )
    STREAM_LIMIT = _row(
        "STREAM_LIMIT", 429, Kind.RESPONSE, RETRY, PLANNED,
        "The plane feeds a bounded number of live console views, and all of them are in use.",
        "Close views that nobody looks at, then reload this one.",
    )
    TERMS_NOT_ACKNOWLEDGED = _row(
        "TERMS_NOT_ACKNOWLEDGED", 400, Kind.RESPONSE, STOP, PLANNED,
        "The invite was to be redeemed without agreeing to the workspace's terms of use.",
        "Read the terms and tick their box; the invite stays good until it expires.",
    )
    USERNAME_INVALID = _row(
        "USERNAME_INVALID", 400, Kind.RESPONSE, STOP, PLANNED,
        "A username has 3 to 40 characters of a-z, 0-9, dot, dash and underscore, and begins with a letter or"
        " digit; this one does not.",
        "Think of a short name in that alphabet; the @ of e-mail addresses is not in it.",
    )
    USERNAME_TAKEN = _row(
        "USERNAME_TAKEN", 409, Kind.RESPONSE, STOP, PLANNED,
        "Somebody in the workspace has this username, or it is one of those reserved for administration.",
        "Vary the name, for instance with an initial; admin, root, operator and the like are never free.",
    )
    WORKSPACE_FULL = _row(
        "WORKSPACE_FULL", 409, Kind.RESPONSE, STOP, PLANNED,
        "The workspace has as many users as this plane allows one, which is five unless configured otherwise.",
        "Disable a user who has left, or have the operator raise the number.",
    )


_row = _rows_of(Surface.LOOKUP_ROUTE)


@unique
class Lookup(_Code):
    """Why a route hint is what it is. Hints fail open: a client takes a code it does not know for no hint."""

    PREFIX_MATCH = _row(
        "PREFIX_MATCH", None, Kind.HINT, STOP, V0_1,
        "A replica holds the prompt's prefix or its leading blocks, above the policy's floors for matched tokens"
        " (64) and score (0.1).",
        "Send the request to the first replica of the ranking that can take it.",
    )
    NO_HINT = _row(
        "NO_HINT", None, Kind.HINT, STOP, V0_1,
        "Nothing speaks for any replica: the prefix is new, short or scored too low, the key is empty, or the"
        " index is empty or off.",
        "Balance the request as if there were no hints; this is an ordinary answer and no fault.",
    )
    TENANT_HOT = _row(
        "TENANT_HOT", None, Kind.HINT, STOP, V0_1,
        "No replica holds this prefix, but one has lately served the tenant, under the same scheme, with a good"
        " hit rate.",
        "Prefer that replica while it has room; no matched tokens are promised.",
    )
    AFFINITY_HINT = _row(
        "AFFINITY_HINT", None, Kind.HINT, STOP, V0_1,
        "Nothing matched, so the prompt's fingerprint chose one replica, and it will choose the same one next"
        " time.",
        "Send requests of this prefix there to let a cache grow; the zero scores are intended.",
    )
    POLICY_REQUIRES_CHAIN = _row(
        "POLICY_REQUIRES_CHAIN", None, Kind.HINT, STOP, V0_1,
        "The cache policy takes only lookups with a valid chain of block hashes; this one had none and was not"
        " looked up.",
        "Have the client send the chain, or lift strategy.requireChain; route this request without a hint.",
    )
    TIMEOUT = _row(
        "TIMEOUT", None, Kind.HINT, STOP, V0_1,
        "The lookup was not done by its deadline; the service says so, or the client concludes it by itself.",
        "Route without a hint at once, and ask no second time for the same request.",
    )
    UNKNOWN_TENANT = _row(
        "UNKNOWN_TENANT", None, Kind.HINT, STOP, V0_1,
        "The index has entries, yet not one of them is of the lookup's tenant.",
        "Compare the tenant id in the client's settings with the one that the replicas' feeds use.",
    )
    UNKNOWN_MODEL = _row(
        "UNKNOWN_MODEL", None, Kind.HINT, STOP, V0_1,
        "The index knows the tenant, but has no entry of it for this model.",
        "Name the model in lookups exactly as the replicas publish it.",
    )
    UNKNOWN_HASH_SCHEME = _row(
        "UNKNOWN_HASH_SCHEME", None, Kind.HINT, STOP, V0_1,
        "The tenant's entries for this model were all made under another hash scheme.",
        "Bring client and replicas to one scheme: the same hash, block size and seed.",
    )


_row = _rows_of(Surface.RENDER_TEMPLATE)


@unique
class Render(_Code):
    """How the rendering of a prompt template ended."""

    OK = _row(
        "OK", None, Kind.RENDER, STOP, V0_1,
        "The template was rendered: the response has the prompt and its stable prefix.",
        "Use the prompt as it stands, so that its prefix goes on matching.",
    )
    TEMPLATE_NOT_FOUND = _row(
        "TEMPLATE_NOT_FOUND", None, Kind.RENDER, STOP, V0_1,
        "The service has no template of the name and version that was asked for.",
        "Apply the PromptTemplate manifest or correct the name; build the prompt in the client meanwhile.",
    )
    RENDER_ERROR = _row(
        "RENDER_ERROR", None, Kind.RENDER, STOP, V0_1,
        "The template is there, but the values given do not fill it, for example because one is missing.",
        "Give every variable that the template declares a value of its type.",
    )

# fmt: on


Code = Governed | ModelApi | Console | Lookup | Render
SURFACES: tuple[type[Code], ...] = (Governed, ModelApi, Console, Lookup, Render)
CODES: tuple[Code, ...] = tuple(code for surface in SURFACES for code in surface)
REASONS: tuple[Reason, ...] = tuple(code._row for code in CODES)
"""Every row, by surface and in the order of the file."""

ANSWER_PRECEDENCE: tuple[Governed, ...] = (
    Governed.REVIEW_PENDING,
    Governed.OUTPUT_REDACTED,
    Governed.VALIDATION_ESCALATED,
    Governed.VALIDATION_REPAIRED,
    Governed.SAFE_PATH_USED,
    Governed.PROVIDER_ERROR_RECOVERED,
    Governed.CACHE_HIT,
    Governed.PER_TYPE_UNCALIBRATED,
    Governed.PERMITTED,
)
"""Of several things that are true of one answer, the earliest here is its code."""


def reason(code: Code) -> Reason:
    """The registry's row of a code."""
    return code._row


def status_of(code: Governed | ModelApi | Console) -> int:
    """The HTTP status of a response that ends with the code; a row's `second` is for its mouth to apply."""
    status = code._row.status
    if status is None:
        raise TypeError(f"{code} belongs to a surface without HTTP statuses")
    return status


def first_of(reasons: Collection[Governed]) -> Governed:
    """The code of an answer of which all of `reasons` are true. Raises ValueError when none of them describes an
    answer: a refusal has one code and is never the outcome of a choice."""
    for code in ANSWER_PRECEDENCE:
        if code in reasons:
            return code
    raise ValueError("none of the reasons describes an answer")
