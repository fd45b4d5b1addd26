"""The reads of the model API: what a key may call, the evidence of its requests, what a message counts."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import ModelApi
from terraflow.core.types import MICRO, Instant
from terraflow.evidence import record
from terraflow.gateway.http.arrived import Arrived, Edge, read_declared
from terraflow.gateway.http.replies import page_answer, plain_answer, request_id_headers
from terraflow.gateway.http.wire import Reply
from terraflow.gateway.in_force import bundle_in_force
from terraflow.gateway.mouths.anthropic_messages import counted
from terraflow.gateway.plane import Plane
from terraflow.ports.store import KeyHolder, RecordedEntry

_REQUEST_ID = re.compile(r"req_[0-9a-f]{32}")


async def models(edge: Edge, arrived: Arrived) -> Reply | Refuse:
    """The workloads that the application may call, and the capabilities that their contracts allow and that are there
    to be used.

    OpenAI's list shape and Anthropic's in one, always a single page; `owned_by` says which of the two an entry is.
    """
    listed = _models_of(edge.plane, arrived.caller)
    if isinstance(listed, Refuse):
        return listed
    return page_answer(listed, arrived.request_id, more=False, mouth=arrived.mouth)


async def model(edge: Edge, arrived: Arrived) -> Reply | Refuse:
    """One entry of `models`; NOT_FOUND for any other."""
    listed = _models_of(edge.plane, arrived.caller)
    if isinstance(listed, Refuse):
        return listed
    found = next((entry for entry in listed if entry["id"] == arrived.argument), None)
    if found is None:
        return Refuse(reason=ModelApi.NOT_FOUND, hint="GET /v1/models lists the models that there are for this key.")
    return plain_answer(found, arrived.request_id, mouth=arrived.mouth)


def _models_of(plane: Plane, caller: KeyHolder) -> list[dict[str, Any]] | Refuse:
    bundle = bundle_in_force(plane)
    if isinstance(bundle, Refuse):
        return bundle
    application = bundle.applications.get((caller.tenant, caller.application))
    entitled = () if application is None else sorted(application.workloads)
    workloads = [bundle.workloads[key] for name in entitled if (key := (caller.tenant, name)) in bundle.workloads]
    allowed = sorted({name for workload in workloads for name in workload.contract.capabilities})
    usable = [name for name in allowed if (c := bundle.capabilities[name]).enabled and plane.providers.ready(c)]
    return [
        *(_entry(workload.id, bundle.issued_at, "workload") for workload in workloads),
        *(_entry(name, bundle.issued_at, "capability") for name in usable),
    ]


def _entry(name: str, created: Instant, owned_by: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created // MICRO,
        "owned_by": owned_by,
        "type": "model",
        "display_name": name,
        "created_at": record.rfc3339(created),
        "lifecycle": "active",
    }


async def evidence(edge: Edge, arrived: Arrived) -> Reply | Refuse:
    """The records of one of the application's requests with their inclusion proofs; EVIDENCE_NOT_FOUND otherwise."""
    entries: Sequence[RecordedEntry] = ()
    caller, named = arrived.caller, arrived.argument
    if _REQUEST_ID.fullmatch(named) is not None:
        entries = await edge.plane.store.find_entries(caller.tenant, caller.application, named)
    if not entries:
        return Refuse(reason=ModelApi.EVIDENCE_NOT_FOUND)
    records = []
    for entry in entries:
        proof = await edge.evidence.prove(caller.tenant, entry.index)
        records.append(
            {
                "kind": entry.kind,
                "index": entry.index,
                "record": msgspec.Raw(entry.data),
                "entry": base64.b64encode(entry.data).decode(),
                "inclusion_proof": None if proof is None else proof.decode(),
            }
        )
    named_parts = {entry.kind: msgspec.Raw(record.whole(entry.data)) for entry in entries}
    body = {
        "object": "evidence",
        "request_id": named,
        "tenant": caller.tenant,
        "decision": named_parts.get("intent"),
        "outcome": named_parts.get("outcome"),
        "feedback": named_parts.get("feedback"),
        "records": records,
    }
    return plain_answer(body, arrived.request_id)


async def count_tokens(edge: Edge, arrived: Arrived) -> Reply | Refuse:
    """An estimate of a message's input tokens; nobody else is asked."""
    read = await read_declared(edge, arrived)
    if isinstance(read, Refuse):
        return read
    _, raw = read
    count = partial(counted, raw, edge.plane.limits.body_values_max)
    body = await edge.plane.turns.parsed(count, len(raw))
    if isinstance(body, Refuse):
        return body
    return Reply(200, request_id_headers(arrived.mouth, arrived.request_id), body)


async def review(edge: Edge, arrived: Arrived) -> Refuse:
    """REVIEW_NOT_FOUND: no contract can hold an answer yet, so there is none."""
    return Refuse(reason=ModelApi.REVIEW_NOT_FOUND)
