"""What an application may say of an answer, parsed, and as it is recorded.

1. A thumb, a score, words of a list: facts. There is no field for a text, since none may stand in the evidence.
2. The same words give the same feedback, in whatever order they came.
3. Of one request one feedback is recorded at a time: what is read of its record holds until it is written to.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.strict_json import BadJson, parse_json
from terraflow.core.types import Instant
from terraflow.evidence import record

BODY_BYTES_MAX = 4_096
VALUES_MAX = 64

RATINGS = ("up", "down")
SCORE_MAX = 100
LABELS = (
    "biased",
    "complete",
    "correct",
    "helpful",
    "incomplete",
    "incorrect",
    "irrelevant",
    "refused",
    "slow",
    "unclear",
    "unsafe",
    "wrong_format",
)
_FIELDS = frozenset(("rating", "score", "labels"))


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One feedback. `score` is 0, the worst, to 100."""

    rating: str | None = None
    score: int | None = None
    labels: tuple[str, ...] = ()


def parse(raw: bytes) -> Said | Refuse:
    """The feedback of a body, or INVALID_REQUEST with the first thing that is wrong."""
    try:
        document = parse_json(raw, nodes_max=VALUES_MAX)
    except BadJson as bad:
        return invalid_request("body", bad.rule)
    if not isinstance(document, dict):
        return invalid_request("body", "must be object")
    if not document.keys() <= _FIELDS:
        return invalid_request("body", f"must hold nothing but {', '.join(sorted(_FIELDS))}")
    rating, score, labels = document.get("rating"), document.get("score"), document.get("labels")
    if rating is not None and rating not in RATINGS:
        return invalid_request("rating", f"must be {' or '.join(RATINGS)}")
    if score is not None and not (type(score) is int and 0 <= score <= SCORE_MAX):
        return invalid_request("score", f"must be integer, 0 to {SCORE_MAX}")
    if labels is not None and not _are_labels(labels):
        return invalid_request("labels", f"must be array of some of {', '.join(LABELS)}, each once")
    if rating is None and score is None and not labels:
        return invalid_request("body", "must hold a rating, a score or labels")
    return Said(rating=rating, score=score, labels=tuple(sorted(labels or ())))


def _are_labels(labels: Any) -> bool:
    if not isinstance(labels, list) or not all(isinstance(label, str) and label in LABELS for label in labels):
        return False
    return len(set(labels)) == len(labels)


def recorded(said: Said, tenant: str, application: str, request_id: str, at: Instant) -> record.Feedback:
    """The record of a feedback."""
    return record.Feedback(
        schema=record.SCHEMA,
        request_id=request_id,
        tenant=tenant,
        time=record.rfc3339(at),
        application=application,
        rating=said.rating,
        score=said.score,
        labels=said.labels,
    )


def said_by(kept: record.Feedback) -> Said:
    """What a recorded feedback says."""
    return Said(rating=kept.rating, score=kept.score, labels=kept.labels)


class OneAtATime:
    """Whose turn it is to speak of a request; forgotten with the last who waits."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, request_id: str) -> asyncio.Lock:
        """The lock of a request."""
        return self._locks.setdefault(request_id, asyncio.Lock())
