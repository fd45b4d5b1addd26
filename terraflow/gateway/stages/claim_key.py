"""Step 6: one idempotency key, one run.

1. A key belongs to an application. What must be equal for a replay is the mouth, the workload, the declared class and
   types, and the body as it was sent.
2. A duplicate of a running request waits for it within its own deadline, then replays it.
3. While a claim is on its way the key counts as this request's: it may be, and ending another's has no effect.
"""

from __future__ import annotations

import hashlib

from terraflow.core.outcome import CONTINUE, Refuse, Replay, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.core.types import MICRO, Instant
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.ports.store import Claimed, Conflicting, Finished, KeyClaim

_POLL_S = 0.05
"""A holder that is not in this process (a crash left it, or another plane has it) is asked for this often."""


async def claim_key(plane: Plane, x: Exchange) -> StepOutcome:
    """Claim the key, or replay, refuse or wait for the request that holds it."""
    assert x.resolution is not None
    key = x.declared.idempotency_key
    if key is None:
        if x.resolution.workload.contract.require_idempotency:
            return Refuse(reason=Governed.IDEMPOTENCY_KEY_REQUIRED)
        return CONTINUE
    x.key_digest = hashlib.sha256(key.encode()).hexdigest()
    now = plane.clock.now()
    claim = KeyClaim(
        tenant=x.caller.tenant,
        application=x.caller.application,
        key=x.key_digest,
        body_digest=_digest(x),
        request_id=x.request_id,
        expires_at=Instant(now + plane.limits.key_keep_s * MICRO),
    )
    while True:
        x.keyed = True
        found = await plane.store.claim(claim, now)
        if isinstance(found, Claimed):
            return CONTINUE
        x.keyed = False
        if isinstance(found, Conflicting):
            return Refuse(reason=Governed.IDEMPOTENCY_CONFLICT)
        if isinstance(found, Finished):
            return _replay(found)
        left = x.deadline - plane.clock.monotonic()
        if left <= 0:
            return Refuse(reason=Governed.DEADLINE_EXPIRED, detail="waiting_for_original")
        with x.presence:
            if found.request_id in plane.running:
                await plane.running.wait(found.request_id, left)
            else:
                await plane.clock.sleep(min(_POLL_S, left))


def _digest(x: Exchange) -> str:
    assert x.resolution is not None
    declared = x.declared
    head = [
        x.mouth,
        x.resolution.workload.id,
        "" if declared.data_class is None else declared.data_class.label,
        ",".join(sorted(declared.sensitive_types)),
        x.body_digest,
    ]
    return hashlib.sha256("\n".join(head).encode()).hexdigest()


def _replay(found: Finished) -> StepOutcome:
    if found.answer is None and found.status < 400:
        return Refuse(
            reason=Governed.IDEMPOTENCY_REPLAY_NO_CONTENT,
            details={"original_request_id": found.request_id, "original_reason_code": found.reason},
        )
    return Replay(request_id=found.request_id, status=found.status, reason=found.reason, answer=found.answer)
