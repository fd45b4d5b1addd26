"""Records and exports to test with: plausible, deterministic, of any size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.core.types import Instant
from terraflow.evidence import record
from terraflow.evidence.checkpoint import log_key
from terraflow.evidence.export import write_export
from terraflow.evidence.log import Integrator
from tests.evidence.ledger import SqliteLedger

TENANT = "acme"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
VERIFIER_KEY = log_key(TENANT, KEY.public_key())
START = 1_764_500_000_000_000


def request_id(number: int) -> str:
    """A request id that looks drawn, as real ones are."""
    return f"req_{record.digest(b'id %d' % number)[:32]}"


def intent(number: int, tenant: str = TENANT, capabilities: int = 6) -> record.Intent:
    """The decision of the request with this number."""
    return record.Intent(
        schema=record.SCHEMA,
        request_id=request_id(number),
        tenant=tenant,
        time=record.rfc3339(Instant(START + number * 1_371)),
        application="app_support",
        mouth="openai_chat",
        business_unit="support",
        workload="starter-assistant",
        priority=1,
        bundle=record.Bundle(sequence=12, digest=record.digest(b"bundle")),
        contract=record.Contract(id="starter-assistant", version=3),
        request=record.Request(
            digest=record.digest(b"request %d" % number),
            bytes=812,
            declared_class="internal",
            scan=record.Scan(data_class="internal", detectors={"email": 1} if number % 7 == 0 else {}, bytes=790),
            max_output_tokens=1_024,
            input_bytes=812,
            deadline_ms=30_000,
        ),
        policy=tuple(
            record.PolicyRow(capability=f"sim-{at}", worst_case_micro_usd=12_345)
            if at % 2
            else record.PolicyRow(capability=f"sim-{at}", exclusion="EXTERNAL_EGRESS_NOT_ALLOWED")
            for at in range(capabilities)
        ),
        plan=("sim-1", "sim-3"),
        reserved_micro_usd=12_345,
        reserved=tuple(
            record.Window(level=level, of="support", window=window)
            for level in ("workload", "business_unit", "tenant")
            for window in ("2026-11", "2026-11-30T14")
        ),
    )


def outcome(number: int, tenant: str = TENANT) -> record.Outcome:
    """The outcome of the request with this number."""
    usage = record.Usage(input=100, output=50)
    return record.Outcome(
        schema=record.SCHEMA,
        request_id=request_id(number),
        tenant=tenant,
        time=record.rfc3339(Instant(START + number * 1_371 + 40_000)),
        reason_code="PERMITTED",
        reasons=("PERMITTED",),
        status=200,
        capability="sim-1",
        attempts=(record.Attempt(capability="sim-1", latency_ms=40, usage=usage, cost_micro_usd=4_444),),
        usage=usage,
        cost_micro_usd=4_444,
        answer=record.Answer(digest=record.digest(b"answer %d" % number), bytes=900),
    )


def feedback(number: int, tenant: str = TENANT) -> record.Feedback:
    """What was said of the request with this number."""
    at = record.rfc3339(Instant(START + number * 1_371 + 90_000))
    ids = {"request_id": request_id(number), "tenant": tenant, "application": "app_support"}
    return record.Feedback(schema=record.SCHEMA, time=at, rating="up", labels=("helpful",), **ids)


def entries(tenant: str = TENANT) -> Iterator[bytes]:
    """Entries without end."""
    return (entry_at(index, tenant) for index in itertools.count())


def entry_at(index: int, tenant: str = TENANT) -> bytes:
    """The entry at an index of a log whose requests overlap by three, as they do under load."""
    if index < 3:
        return record.encode(intent(index, tenant))
    number, ends = divmod(index - 3, 2)
    return record.encode(outcome(number, tenant) if ends else intent(number + 3, tenant))


def ledger_of(sizes: tuple[int, ...], tenant: str = TENANT) -> SqliteLedger:
    """A ledger with a checkpoint at each of the sizes."""
    ledger, source = SqliteLedger(), entries(tenant)
    integrator = Integrator(ledger, KEY)
    for size in sizes:
        ledger.append(tenant, itertools.islice(source, size - ledger.size(tenant)))
        while integrator.step(tenant) is not None:
            pass
    return ledger


def export_of(sizes: tuple[int, ...], out: Path) -> SqliteLedger:
    """The ledger of which `out` is now an export."""
    ledger = ledger_of(sizes)
    write_export(ledger, TENANT, out, KEY)
    return ledger
