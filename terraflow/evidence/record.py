"""What is recorded of a governed request: two leaves, `intent` before anything runs and `outcome` at its end; and
one more, `feedback`, for each time that its application says how good the answer was.

1. Facts, never content: digests, sizes, classes, codes, counts, costs. What names a thing is its id in the bundle.
2. Every fact that the policy table reads is there, so that a decision can be asked again from the record and the
   bundle it names: the request's facts, and of each capability what the plane knew of it at that instant.
3. A field at its default is left out, and the default is part of schema 1.
4. An encoded record is canonical JSON of at most 65 535 bytes. Of a longer one the longest table alone is packed
   (`detached`: the canonical form of the table, compressed, with its size and digest), or else all its tables are;
   `decode` puts them back. What does not fit even so, some six thousand capabilities, leaves its digest alone.
5. Integers stay below 2^53, and no field is a float: durations are whole milliseconds, money is micro-dollars.
6. A digest is SHA-256 in lower-case hexadecimal.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from functools import lru_cache
from hashlib import sha256
from time import gmtime, strftime

import msgspec

from terraflow.core.canonical import canonical
from terraflow.core.types import Instant
from terraflow.evidence.tiles import ENTRY_BYTES_MAX

SCHEMA = 1


class _Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a record."""


class Bundle(_Row, frozen=True):
    """The bundle that was in force."""

    sequence: int
    digest: str


class Contract(_Row, frozen=True):
    """The contract that governed the workload."""

    id: str
    version: int


class Scan(_Row, frozen=True):
    """What the scan found: `detectors` counts findings by detector, `bytes` is what was scanned, `attachments` says
    whether there was a file that cannot be scanned."""

    data_class: str
    types: tuple[str, ...] = ()
    detectors: dict[str, int] = {}
    bytes: int = 0
    attachments: bool = False


class Tools(_Row, frozen=True):
    """The tools the request offered; the digest is of their definitions in canonical form."""

    count: int
    digest: str


class Request(_Row, frozen=True):
    """The request's facts. `bytes` is as it arrived, `input_bytes` as it would be sent on."""

    digest: str
    bytes: int
    declared_class: str | None = None
    declared_types: tuple[str, ...] = ()
    scan: Scan | None = None
    tools: Tools | None = None
    stream: bool = False
    pinned: str | None = None
    max_output_tokens: int | None = None
    input_bytes: int | None = None
    audio: bool = False
    deadline_ms: int | None = None
    idempotency_key_digest: str | None = None


class Run(_Row, frozen=True):
    """The run that the caller said the request belongs to, and the budget that it declared for the whole run."""

    id: str
    budget_micro_usd: int | None = None


class PolicyRow(_Row, frozen=True):
    """One capability as the policy saw it: its exclusion (None: permitted), and its condition at that instant.

    A condition that the decision did not ask for is left at its default. `worst_case_micro_usd` None: not priced.
    """

    capability: str
    exclusion: str | None = None
    detail: str = ""
    enabled: bool = True
    secret_present: bool = True
    healthy: bool = True
    inside_boundary: bool = True
    has_free_slot: bool = True
    recent_faults: int = 0
    under_pressure: bool = False
    worst_case_micro_usd: int | None = None


class Window(_Row, frozen=True):
    """A budget line that the first reservation touched: level, its owner's id, the window's key."""

    level: str
    of: str
    window: str


class Detached(_Row, frozen=True):
    """The tables that were too long for a leaf: their names, size and digest of their canonical form (an object by
    name), and `packed`, that form under zlib (RFC 1950) in standard base64; None where that does not fit either."""

    fields: tuple[str, ...]
    bytes: int
    digest: str
    packed: str | None = None


class Intent(_Row, frozen=True, tag="intent", tag_field="kind"):
    """The decision, durable before anything runs."""

    schema: int
    request_id: str
    tenant: str
    time: str
    application: str
    mouth: str
    business_unit: str | None = None
    workload: str | None = None
    priority: int | None = None
    bundle: Bundle | None = None
    contract: Contract | None = None
    request: Request | None = None
    run: Run | None = None
    policy: tuple[PolicyRow, ...] = ()
    plan: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reserved_micro_usd: int = 0
    reserved: tuple[Window, ...] = ()
    detached: Detached | None = None


class Usage(_Row, frozen=True):
    """Tokens by how they are priced; `input` counts those that no other field counts."""

    input: int = 0
    cached: int = 0
    cache_written: int = 0
    output: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0


class Placement(_Row, frozen=True):
    """The replica of a fleet that a call went to, and the route hint that was there: its reason code (None: none was
    asked for), the replica that it put first, and the tokens that one was said to hold. How many tokens the engine
    itself found in its cache is the attempt's `usage.cached`."""

    replica: str
    hint: str | None = None
    ranked: str | None = None
    matched_tokens: int = 0


class Attempt(_Row, frozen=True):
    """One call of a capability: `kind` says why it was made, `failure` is None when it answered.

    `estimated`: the usage is our count, not the provider's. `overrun`: it cost more than its reservation. `placement`
    is that of a fleet's call; None when no replica was called.
    """

    capability: str
    kind: str = "first"
    failure: str | None = None
    latency_ms: int = 0
    usage: Usage | None = None
    cost_micro_usd: int = 0
    estimated: bool = False
    overrun: bool = False
    placement: Placement | None = None


class Answer(_Row, frozen=True):
    """The answer as it was released."""

    digest: str
    bytes: int


class Outcome(_Row, frozen=True, tag="outcome", tag_field="kind"):
    """How the request ended. `original_request_id` names the request whose outcome a replay or cache hit
    repeats."""

    schema: int
    request_id: str
    tenant: str
    time: str
    reason_code: str
    status: int
    reasons: tuple[str, ...] = ()
    detail: str | None = None
    capability: str | None = None
    original_request_id: str | None = None
    attempts: tuple[Attempt, ...] = ()
    usage: Usage | None = None
    cost_micro_usd: int = 0
    savings_micro_usd: int = 0
    answer: Answer | None = None
    validation: tuple[str, ...] = ()
    recovered: bool = False
    detached: Detached | None = None


class Feedback(_Row, frozen=True, tag="feedback", tag_field="kind"):
    """What the application said of a request that had ended: `rating` is `up` or `down`, `score` 0 to 100, `labels`
    words of the plane's own list, in order. The newest of a request counts."""

    schema: int
    request_id: str
    tenant: str
    time: str
    application: str
    rating: str | None = None
    score: int | None = None
    labels: tuple[str, ...] = ()


Record = Intent | Outcome
LONGEST: dict[type[Intent] | type[Outcome], tuple[str, ...]] = {Intent: ("policy",), Outcome: ("attempts",)}
TABLES: dict[type[Intent] | type[Outcome], tuple[str, ...]] = {
    Intent: ("notes", "plan", "policy", "request", "reserved"),
    Outcome: ("attempts", "detail", "reasons", "validation"),
}
TABLES_BYTES_MAX = 64 * 1024 * 1024
"""What `decode` unpacks at the most."""


class RecordTooLong(Exception):
    """A record whose head alone does not fit a leaf: one of its ids is absurdly long."""


def encode(record: Record) -> bytes:
    """The record as one leaf's entry (rule 4)."""
    entry = canonical(record)
    if len(entry) <= ENTRY_BYTES_MAX:
        return entry
    kind = type(record)
    for fields, packs in ((LONGEST[kind], True), (TABLES[kind], True), (LONGEST[kind], False), (TABLES[kind], False)):
        entry = _without(record, fields, packs)
        if len(entry) <= ENTRY_BYTES_MAX:
            return entry
    raise RecordTooLong(record.request_id)


def _without(record: Record, fields: tuple[str, ...], packs: bool) -> bytes:
    tables = canonical({field: getattr(record, field) for field in fields})
    packed = b64encode(zlib.compress(tables)).decode() if packs and len(tables) <= TABLES_BYTES_MAX else None
    detached = Detached(fields=fields, bytes=len(tables), digest=digest(tables), packed=packed)
    return canonical(msgspec.structs.replace(record, **_empty(record, fields), detached=detached))


def _empty(record: Record, fields: tuple[str, ...]) -> dict[str, object]:
    defaults = {field.name: field.default for field in msgspec.structs.fields(record)}
    return {name: None if defaults[name] is None else () for name in fields}


def decode(entry: bytes) -> Record:
    """The record of an entry, with what was packed in its place; raises msgspec.ValidationError for what is not one of
    schema 1."""
    record = _decoder.decode(entry)
    detached = record.detached
    if detached is None or detached.packed is None:
        return record
    tables = _unpacked(detached)
    types = {field.name: field.type for field in msgspec.structs.fields(type(record))}
    if set(tables) != set(detached.fields) or not set(detached.fields) <= set(TABLES[type(record)]):
        raise msgspec.ValidationError("the packed tables are others than are named")
    values = {name: msgspec.convert(value, types[name]) for name, value in tables.items()}
    return msgspec.structs.replace(record, **values, detached=None)


def whole(entry: bytes) -> bytes:
    """The canonical JSON of an entry's record with what was packed in its place: for reading, since it may be longer
    than a leaf."""
    return canonical(decode(entry)) if b'"packed":' in entry else entry


def _unpacked(detached: Detached) -> dict[str, object]:
    if not 0 <= detached.bytes <= TABLES_BYTES_MAX:
        raise msgspec.ValidationError("the packed tables are too long")
    unpacking = zlib.decompressobj()
    try:
        tables = unpacking.decompress(b64decode(detached.packed or "", validate=True), detached.bytes + 1)
    except (zlib.error, ValueError):
        raise msgspec.ValidationError("the packed tables cannot be unpacked") from None
    if not unpacking.eof or unpacking.unused_data or len(tables) != detached.bytes or digest(tables) != detached.digest:
        raise msgspec.ValidationError("the packed tables are not those of their digest")
    return msgspec.json.decode(tables, type=dict[str, object])


_decoder = msgspec.json.Decoder(Record)

encode_feedback = canonical
decode_feedback = msgspec.json.Decoder(Feedback).decode


def digest(raw: bytes) -> str:
    """A digest as records write it (rule 6)."""
    return sha256(raw).hexdigest()


def rfc3339(at: Instant) -> str:
    """An instant as records write it: UTC, microseconds, `Z`."""
    seconds, micro = divmod(at, 1_000_000)
    return f"{_second(seconds)}.{micro:06d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds))
