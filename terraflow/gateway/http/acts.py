"""The acts of the model API on a request that was made before: cancelling it.

1. An application acts on its own requests; another's looks like one that does not exist.
2. An act is no governed request: it has a request id of its own, and no reason header.
"""

from __future__ import annotations

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import usd
from terraflow.evidence import record
from terraflow.gateway.http.replies import request_id_headers
from terraflow.gateway.http.wire import Reply
from terraflow.gateway.mouths.openai_chat import CHAT
from terraflow.gateway.plane import Plane
from terraflow.ports.store import KeyHolder

CANCEL_WAIT_S = 5.0
"""How long a cancellation waits for its request's end: what was used is posted and recorded in milliseconds."""

_encode = msgspec.json.Encoder().encode


async def cancel(plane: Plane, caller: KeyHolder, request_id: str, named: str) -> Reply | Refuse:
    """End a request that is under way: 200 with how it ended, 202 when its end is not recorded yet; REQUEST_NOT_FOUND
    for any that is not under way.

    `cancelled` false: it came to its own end first. Each of several cancellations at once gets the same answer.
    """
    if not plane.running.cancel(named, (caller.tenant, caller.application)):
        return Refuse(reason=ModelApi.REQUEST_NOT_FOUND)
    ended = await plane.running.wait(named, CANCEL_WAIT_S)
    outcome = await _outcome(plane, caller, named) if ended else None
    body = {
        "object": "request",
        "id": named,
        "cancelled": None if outcome is None else outcome.reason_code == Governed.CANCELLED,
        "reason_code": None if outcome is None else outcome.reason_code,
        "cost_usd": None if outcome is None else usd(outcome.cost_micro_usd),
    }
    return Reply(202 if outcome is None else 200, request_id_headers(CHAT, request_id), _encode(body))


async def _outcome(plane: Plane, caller: KeyHolder, named: str) -> record.Outcome | None:
    for entry in await plane.store.find_entries(caller.tenant, caller.application, named):
        if entry.kind == "outcome":
            found = record.decode(entry.data)
            assert isinstance(found, record.Outcome)
            return found
    return None
