"""Closed outcomes as HTTP: status, the plane's headers, and a body in the mouth's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.reasons import reason as reason_of
from terraflow.core.types import usd
from terraflow.gateway.exchange import Closed
from terraflow.gateway.http.wire import Headers, Reply
from terraflow.gateway.mouths import errors
from terraflow.gateway.mouths.mouth import Mouth
from terraflow.gateway.mouths.openai_chat import CHAT

_REFUSED = 400
_UNAUTHENTICATED = 401
"""RFC 9110 has no such answer without the scheme that would be taken."""

_encode = msgspec.json.Encoder().encode


def request_id_headers(mouth: Mouth, request_id: str) -> Headers:
    """The request's id, under our name and under the one that the mouth's clients show in their errors."""
    raw = request_id.encode()
    return [(b"x-terraflow-request-id", raw), (mouth.request_id_header, raw)]


def plain_answer(body: object, request_id: str, status: int = 200, mouth: Mouth = CHAT) -> Reply:
    """An answer beside governance: `body` as JSON, and the request's id where the mouth's clients look for it."""
    return Reply(status, request_id_headers(mouth, request_id), _encode(body))


def page_answer(listed: Sequence[Mapping[str, Any]], request_id: str, *, more: bool, mouth: Mouth = CHAT) -> Reply:
    """A page of a list, as the clients of OpenAI and of Anthropic read it."""
    first_id, last_id = (listed[0]["id"], listed[-1]["id"]) if listed else (None, None)
    page = {"object": "list", "data": listed, "first_id": first_id, "last_id": last_id, "has_more": more}
    return plain_answer(page, request_id, mouth=mouth)


def ungoverned(refuse: Refuse, request_id: str | None, mouth: Mouth = CHAT) -> Reply:
    """An error from before governance: its code is in the body alone. Without a path there is no mouth to speak with,
    and the shape is OpenAI's."""
    headers: Headers = [] if request_id is None else request_id_headers(mouth, request_id)
    if refuse.retry_after_s is not None:
        headers.append((b"retry-after", str(refuse.retry_after_s).encode()))
    elif not reason_of(refuse.reason).retry:
        headers.append((b"x-should-retry", b"false"))
    told = errors.ungoverned(refuse, request_id)
    if told.status == _UNAUTHENTICATED:
        headers.append((b"www-authenticate", b"Bearer"))
    return Reply(told.status, headers, mouth.error(told))


@lru_cache(maxsize=256)
def shed_at_the_step(retry_after_s: int, mouth: Mouth) -> tuple[Refuse, Reply]:
    """What a request is told that is sent away before governance. It is the same for all, and made once: it is sent
    when there is no time."""
    refuse = Refuse(reason=Governed.QUEUE_SHED, retry_after_s=retry_after_s)
    return refuse, ungoverned(refuse, None, mouth)


def governed_headers(mouth: Mouth, closed: Closed) -> Headers:
    """The headers of a governed answer or refusal."""
    said = Governed.IDEMPOTENCY_REPLAY if closed.replay_of is not None else closed.reason
    headers: Headers = [
        *request_id_headers(mouth, closed.request_id),
        (b"x-terraflow-reason", said.encode()),
        (b"x-terraflow-cost-usd", usd(closed.cost).encode()),
    ]
    if closed.capability is not None:
        headers.append((b"x-terraflow-capability", closed.capability.encode()))
    if closed.savings is not None:
        headers.append((b"x-terraflow-savings-usd", usd(closed.savings).encode()))
    if closed.replay_of is not None:
        headers.append((b"x-terraflow-idempotent-replay", b"true"))
    if closed.retry_after_s is not None:
        headers.append((b"retry-after", str(closed.retry_after_s).encode()))
    elif closed.status >= _REFUSED and not closed.retry:
        headers.append((b"x-should-retry", b"false"))
    return headers


def governed_refusal(mouth: Mouth, closed: Closed) -> Reply:
    """A governed refusal in the mouth's error shape."""
    return Reply(closed.status, governed_headers(mouth, closed), mouth.error(errors.governed(closed)))


def flowing_headers(mouth: Mouth, request_id: str, capability: str | None) -> Headers:
    """The headers of a stream that flows: its outcome does not exist yet, so it carries no reason and no cost; where
    none has answered yet, no capability either."""
    headers = request_id_headers(mouth, request_id)
    if capability is not None:
        headers.append((b"x-terraflow-capability", capability.encode()))
    return headers
