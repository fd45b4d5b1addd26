"""Step 12: a validated answer to the very same request, given again.

1. The key is the tenant, the contract's id and version, what the request was classified and pinned as, and its
   canonical document with the length of the answer it asks for and with whether it is told in extension fields, which
   are sent in other words; nothing less than all of it.
2. An answer is given only while the capability that produced it is still permitted to this request.
3. It used nothing, and says so in every count.
"""

from __future__ import annotations

import contextlib
import hashlib

import msgspec

from terraflow.core.outcome import CONTINUE, Deliver, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.kept import decode
from terraflow.gateway.plane import Plane
from terraflow.gateway.pricing import cost_of
from terraflow.ports.upstream import Usage
from terraflow.spend.pricing import UnknownPrice

_encode = msgspec.json.Encoder(order="deterministic").encode


async def answer_from_cache(plane: Plane, x: Exchange) -> StepOutcome:
    """CACHE_HIT, or nothing."""
    assert x.resolution is not None and x.bundle is not None
    contract = x.resolution.workload.contract
    if contract.response_cache is None:
        return CONTINUE
    x.cache_key = _key(x)
    if type(x.cache_key) is not str:
        raise TypeError("no cache key")
    found = await plane.store.find_answer(x.caller.tenant, x.cache_key, plane.clock.now())
    if found is None or found.producer not in x.permitted:
        return CONTINUE
    if x.resolution.pinned not in (None, found.producer):
        return CONTINUE
    kept = decode(found.data)
    if plane.clock.now() >= kept.fresh_until:
        return CONTINUE
    answer = kept.answer
    baseline = x.bundle.capabilities[contract.baseline_capability or found.producer]
    with contextlib.suppress(UnknownPrice):
        x.savings = cost_of(baseline, answer.usage)
    beside = msgspec.structs.replace(answer.beside, usage={}, prompt_tokens={}, completion_tokens={})
    x.answer = msgspec.structs.replace(answer, usage=Usage(), beside=beside)
    x.original_request_id = found.request_id
    x.capability = found.producer
    x.reasons.append(Governed.CACHE_HIT)
    return Deliver()


def _key(x: Exchange) -> str:
    assert x.resolution is not None
    contract, request = x.resolution.workload.contract, x.request
    parts = (
        x.caller.tenant,
        x.resolution.workload.id,
        contract.id,
        contract.version,
        x.resolution.pinned,
        int(x.data_class or 0),
        sorted(x.sensitive_types),
        request.output_tokens_max,
        request.extended,
        request.document,
    )
    return hashlib.sha256(_encode(parts)).hexdigest()
