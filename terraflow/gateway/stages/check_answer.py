"""Step 16: an answer that must satisfy a schema does, is repaired once, or is not released.

Content rules, escalation and redaction come with the content work.
"""

from __future__ import annotations

from typing import Any

import msgspec

from terraflow.contracts.schemas import Validator
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.gateway.attempts import open_trial
from terraflow.gateway.calling import call_once
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.pricing import worst_case_of
from terraflow.gateway.trial import Rests, Why
from terraflow.ports.upstream import Answer, ModelRequest

REPAIR_ASK = (
    "The answer above does not satisfy the JSON schema that was asked for. Answer again with one JSON value that"
    " satisfies it, and with nothing else."
)


async def check_answer(plane: Plane, x: Exchange) -> StepOutcome:
    """VALIDATION_REPAIRED is noted, or VALIDATION_BLOCKED ends the request."""
    assert x.resolution is not None
    validator = x.validator
    failed = None if validator is None or x.answer is None else _fault(validator, x.answer)
    if validator is None or failed is None:
        return CONTINUE
    repaired = x.resolution.workload.contract.output.repair and await _repair(plane, x, failed)
    if repaired and x.answer is not None and _fault(validator, x.answer) is None:
        x.reasons.append(Governed.VALIDATION_REPAIRED)
        return CONTINUE
    x.answer = None
    return Refuse(reason=Governed.VALIDATION_BLOCKED, detail="json_schema")


def _fault(validator: Validator, answer: Answer) -> dict[str, Any] | None:
    """The first choice's message whose text is not JSON that satisfies the schema. A choice that calls tools is no
    answer yet: what it says beside the call is not checked; one that has neither text nor call fails."""
    said = [choice["message"] for choice in answer.choices if not choice["message"].get("tool_calls")]
    at = validator.first_fault([m["content"] if isinstance(m.get("content"), str) else "" for m in said])
    return None if at is None else said[at]


async def _repair(plane: Plane, x: Exchange, failed_message: dict[str, Any]) -> bool:
    """One more call on the same capability, shown its own answer; False when it could not be made."""
    assert x.answered_by is not None and x.resolution is not None
    request = _with_repair(x.request_sent, failed_message)
    definition = x.definition(x.answered_by.capability.id)
    worst_case = worst_case_of(definition, request, x.answered_by.output_tokens_max)
    limit = x.resolution.workload.survey.contract.request_limit_micro_usd
    if limit is not None and worst_case > limit:
        return False
    trial = await open_trial(plane, x, x.answered_by, Why.REPAIR, request, worst_case)
    if isinstance(trial, Refuse | Rests):
        return False
    return await call_once(plane, x, trial, flows=False) is None


def _with_repair(request: ModelRequest, failed: dict[str, Any]) -> ModelRequest:
    """The request with the first answer that failed, and the ask to give one that does not."""
    said = failed.get("content") or ""
    more = [{"role": "assistant", "content": said}, {"role": "user", "content": REPAIR_ASK}]
    document = {**request.document, "messages": [*request.messages, *more]}
    added = len(msgspec.json.encode(more))
    return msgspec.structs.replace(request, document=document, size_bytes=request.size_bytes + added)
