"""Where each reason code can occur in the model API: one row a code, its places behind it.

1. A place is one of the three mouths, an item of a batch, the first name of a path below `/v1`, or one of the four
   paths outside of it.
2. Black-box tests hold the table to the truth (`tests/raised.py`): `tools.reasons_check` fails for a place that no test
   saw, and for a sighting at a place that the table does not name.
3. `item` stands where a batch's item ends with the code. What only says that the plane is busy or out of order for the
   moment ends none that no model was asked for: it runs later.
"""

from __future__ import annotations

from terraflow.core.reasons import Governed, ModelApi

MOUTHS = {"/v1/chat/completions": "chat", "/v1/messages": "messages", "/v1/invocations": "invocations"}
_OUTSIDE = "healthz readyz openapi.json metrics"
_PATHS = MOUTHS | {"/v1/messages/count_tokens": "count_tokens", "item": "item"}
_PATHS |= {f"/{place}": place for place in _OUTSIDE.split()}

_MOUTHS = " ".join(MOUTHS.values())
_ITEM = f"{_MOUTHS} item"
_READS = "count_tokens models evidence reviews requests files batches"
_EVERY = f"{_MOUTHS} {_READS}"
_DECLARED = f"{_MOUTHS} count_tokens requests"


def place_of(path: str) -> str | None:
    """The place of a path, or of the item of a batch, whose path is `item`; None for any other."""
    path = path.partition("?")[0]
    if path in _PATHS:
        return _PATHS[path]
    root, _, below = path.partition("/v1/")
    room = below.partition("/")[0]
    return room if not root and room in _READS.split() else None


# fmt: off
_ROWS: tuple[tuple[Governed | ModelApi, str], ...] = (
    (Governed.APP_NOT_ENTITLED_TO_WORKLOAD,              _ITEM),
    (Governed.APP_UNAUTHENTICATED,                       _EVERY),
    (Governed.BUDGET_EXHAUSTED,                          _ITEM),
    (Governed.BUDGET_REQUEST_LIMIT,                      _ITEM),
    (Governed.BUNDLE_EXPIRED,                            f"{_MOUTHS} models batches"),
    (Governed.BUNDLE_INVALID,                            f"{_MOUTHS} models batches"),
    (Governed.BURST_ONLY_ON_CAPACITY,                    _ITEM),
    (Governed.CACHE_HIT,                                 _ITEM),
    (Governed.CANCELLED,                                 _MOUTHS),
    (Governed.CAPABILITY_NOT_IN_CONTRACT,                _ITEM),
    (Governed.CONSEQUENCE_TIER_NOT_APPROVED,             _ITEM),
    (Governed.CONTENT_FILTERED,                          _ITEM),
    (Governed.CONTEXT_WINDOW_EXCEEDED,                   _ITEM),
    (Governed.CONTRACT_NOT_EXECUTABLE,                   _ITEM),
    (Governed.DATA_CLASS_EXCEEDS_CAPABILITY,             _ITEM),
    (Governed.DATA_CLASS_NOT_PERMITTED,                  _ITEM),
    (Governed.DATA_CLASS_UNDECLARED,                     _ITEM),
    (Governed.DATA_TERMS_RETENTION,                      _ITEM),
    (Governed.DATA_TERMS_TRAINING,                       _ITEM),
    (Governed.DEADLINE_EXPIRED,                          _ITEM),
    (Governed.EVIDENCE_UNAVAILABLE,                      f"{_EVERY} item"),
    (Governed.EXTERNAL_EGRESS_NOT_ALLOWED,               _ITEM),
    (Governed.IDEMPOTENCY_CONFLICT,                      _MOUTHS),
    (Governed.IDEMPOTENCY_KEY_REQUIRED,                  _MOUTHS),
    (Governed.IDEMPOTENCY_REPLAY,                        _MOUTHS),
    (Governed.IDEMPOTENCY_REPLAY_NO_CONTENT,             _ITEM),
    (Governed.INPUT_TOO_LARGE,                           _ITEM),
    (Governed.INTERNAL_ERROR,                            f"{_EVERY} item"),
    (Governed.JURISDICTION_NOT_ALLOWED,                  _ITEM),
    (Governed.LIFECYCLE_NOT_APPROVED,                    _ITEM),
    (Governed.MODEL_FAMILY_NOT_ALLOWED,                  _ITEM),
    (Governed.NO_POLICY_PERMITTED_ROUTE,                 _ITEM),
    (Governed.NO_ROUTE_WITHIN_REQUEST_LIMIT,             _ITEM),
    (Governed.PERMITTED,                                 _ITEM),
    (Governed.POLICY_EVALUATION_ERROR,                   _ITEM),
    (Governed.PREFIX_CACHE_SHARED,                       _ITEM),
    (Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY,         _ITEM),
    (Governed.PROVIDER_DISABLED,                         _ITEM),
    (Governed.PROVIDER_ERROR_RECOVERED,                  _ITEM),
    (Governed.PROVIDER_ERROR_UNRECOVERED,                _ITEM),
    (Governed.PROVIDER_REJECTED_REQUEST,                 _ITEM),
    (Governed.PROVIDER_UNHEALTHY,                        _MOUTHS),
    (Governed.QUEUE_SHED,                                _EVERY),
    (Governed.RATE_LIMITED,                              _MOUTHS),
    (Governed.SAFE_PATH_USED,                            _ITEM),
    (Governed.SENSITIVE_TYPE_NOT_ALLOWED_ON_CAPABILITY,  _ITEM),
    (Governed.TENANT_MISMATCH,                           _ITEM),
    (Governed.TENANT_QUEUE_LIMIT,                        _MOUTHS),
    (Governed.TIER_NOT_AVAILABLE,                        _MOUTHS),
    (Governed.TOOLS_UNSUPPORTED,                         _ITEM),
    (Governed.TOOL_NOT_PERMITTED,                        _ITEM),
    (Governed.UNKNOWN_WORKLOAD,                          f"{_ITEM} batches"),
    (Governed.VALIDATION_BLOCKED,                        _ITEM),
    (Governed.VALIDATION_REPAIRED,                       _ITEM),
    (ModelApi.BATCH_NOT_FOUND,                           "batches"),
    (ModelApi.BATCH_REQUIRES_P3,                         "batches item"),
    (ModelApi.DUPLICATE_CUSTOM_ID,                       "batches"),
    (ModelApi.EVIDENCE_NOT_FOUND,                        "evidence"),
    (ModelApi.INVALID_DATA_CLASS,                        f"{_DECLARED} batches item"),
    (ModelApi.INVALID_DEADLINE,                          f"{_DECLARED} item"),
    (ModelApi.INVALID_REQUEST,                           f"{_EVERY} item {_OUTSIDE}"),
    (ModelApi.INVALID_SENSITIVE_TYPE,                    f"{_DECLARED} batches item"),
    (ModelApi.METRICS_TOKEN_REQUIRED,                    "metrics"),
    (ModelApi.METRICS_UNAUTHORIZED,                      "metrics"),
    (ModelApi.NOT_FOUND,                                 f"{_EVERY} {_OUTSIDE}"),
    (ModelApi.REQUEST_NOT_FOUND,                         "requests"),
    (ModelApi.REVIEW_NOT_FOUND,                          "reviews"),
)
# fmt: on
OCCURRENCES: dict[str, frozenset[str]] = {str(code): frozenset(places.split()) for code, places in _ROWS}
"""The places of each code of the governed and the model-API surface that is raised by now; no name stands on both."""
