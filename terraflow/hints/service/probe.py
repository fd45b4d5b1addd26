"""`POST /probe`: one block through the live index under the reserved tenant, and out of it again.

1. Stages in order: `ingest` (a report lands and is found), `routing` (the lookup's own steps name the replica), `t2`
   (skipped: this service has no client of a second tier). Behind a failed stage the others are skipped.
2. It runs in one turn of the loop, so that nobody ever sees its entries, and cleans up whatever happens.
3. It proves the index and the lookup in this process. It says nothing of feeds, of TLS or of what gateways hash.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.look import never
from terraflow.hints.deciding.lookup import STEPS, start
from terraflow.hints.deciding.question import Query
from terraflow.hints.words import PROBE_TENANT, Entry, Report, Scope, Stats, Tier

if TYPE_CHECKING:
    from terraflow.hints.live import LiveHints

REPLICA_PREFIX = "__probe-"
TOKENS = 64
"""As many as the default policy asks of a match."""

Outcome = Literal["ok", "failed", "skipped"]
_Name = Annotated[str, Meta(min_length=1, max_length=1024)]


class ProbeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What to probe as: a backend's unique name, and the model and scheme of its entries."""

    backend: _Name
    model: _Name
    hash_scheme: _Name
    backend_type: str = ""


class StageError(msgspec.Struct, frozen=True):
    """What failed, for people."""

    stage: str
    message: str


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """How each stage ended."""

    backend: str
    ingest: Outcome
    routing: Outcome
    t2: Outcome = "skipped"
    errors: tuple[StageError, ...] = ()


def run_probe(live: LiveHints, asked: ProbeRequest) -> ProbeResult:
    """Probe once. Never raises."""
    replica = REPLICA_PREFIX + asked.backend
    names = (asked.backend, asked.model, asked.hash_scheme)
    block = sha256(b"".join(len(name.encode()).to_bytes(4, "big") + name.encode() for name in names)).digest()
    report = Report(
        replica=replica,
        model=asked.model,
        tenant=PROBE_TENANT,
        scheme=asked.hash_scheme,
        entries=(Entry("", [block], [TOKENS], Tier.MEMORY),),
        stats=Stats(hit_rate=1.0),
    )
    try:
        trouble = _ingest(live, report, block)
        if trouble:
            return _failed(asked, "ingest", trouble)
        trouble = _route(live, report, block)
        if trouble:
            return _failed(asked, "routing", trouble)
        return ProbeResult(backend=asked.backend, ingest="ok", routing="ok")
    finally:
        live.clear(PROBE_TENANT, asked.model, replica)


def _failed(asked: ProbeRequest, stage: Literal["ingest", "routing"], message: str) -> ProbeResult:
    return ProbeResult(
        backend=asked.backend,
        ingest="ok" if stage == "routing" else "failed",
        routing="failed" if stage == "routing" else "skipped",
        errors=(StageError(stage, message),),
    )


def _ingest(live: LiveHints, report: Report, block: bytes) -> str:
    try:
        live.ingest(report)
        held = live.index.chain(report.scope, "", [block], [TOKENS], live.clock.monotonic())
    except Exception as error:
        return f"the index failed: {type(error).__name__}"
    if report.replica not in [row.replica for row in held]:
        return "the index took the report and does not have its block"
    return ""


def _route(live: LiveHints, report: Report, block: bytes) -> str:
    scope: Scope = report.scope
    query = Query(
        tenant=scope.tenant,
        model=scope.model,
        scheme=scope.scheme,
        block_hashes=[block],
        block_token_counts=[TOKENS],
    )
    try:
        alone = replace(live.grounds, tokenizers=None, assigned=None, share_min=0.0)
        look = start(query, alone, live.clock.monotonic(), never)
        # The first step turns the reserved tenant away; the rest is what every lookup goes through.
        decision = next(filter(None, (step(look) for step in STEPS[1:])))
    except Exception as error:
        return f"the lookup failed: {type(error).__name__}"
    if decision.reason is not Lookup.PREFIX_MATCH:
        return f"the lookup answered {decision.reason} where {Lookup.PREFIX_MATCH} was due: {decision.why}"
    if report.replica not in [row.replica for row in decision.ranked]:
        return "the lookup named other replicas than the one that holds the block"
    return ""
