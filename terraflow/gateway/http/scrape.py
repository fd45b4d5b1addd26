"""`GET /metrics`: the plane's numbers, for whoever holds the metrics token.

1. The token is compared by its digest, in a time that does not depend on what was sent.
2. The numbers are made off the event loop, by whoever gives them.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import ModelApi
from terraflow.gateway.http.head import Head
from terraflow.gateway.http.wire import Reply

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""


class MetricsDoor(msgspec.Struct, frozen=True, kw_only=True):
    """Who may scrape, and what is shown: `token_digest` is the token's SHA-256, None when no token is set."""

    token_digest: bytes | None
    exposition: Callable[[], Awaitable[bytes]]


async def scrape(door: MetricsDoor | None, method: str, head: Head) -> Reply | Refuse:
    """The numbers, or NOT_FOUND when metrics are off, METRICS_TOKEN_REQUIRED, METRICS_UNAUTHORIZED."""
    if door is None or method not in ("GET", "HEAD"):
        return Refuse(reason=ModelApi.NOT_FOUND)
    if door.token_digest is None:
        return Refuse(reason=ModelApi.METRICS_TOKEN_REQUIRED)
    token = head.bearer
    if token is None or not hmac.compare_digest(hashlib.sha256(token).digest(), door.token_digest):
        return Refuse(reason=ModelApi.METRICS_UNAUTHORIZED)
    return Reply(200, [], await door.exposition(), CONTENT_TYPE)
