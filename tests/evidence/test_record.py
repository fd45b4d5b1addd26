"""Records: what a leaf looks like, and that it always fits one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.core.canonical import canonical, parse_canonical
from terraflow.core.types import Instant
from terraflow.evidence import record
from terraflow.evidence.tiles import ENTRY_BYTES_MAX
from tests.evidence.sample import intent, outcome


def test_a_record_is_canonical_json_and_comes_back() -> None:
    for each in (intent(1), outcome(1)):
        entry = record.encode(each)
        parsed = parse_canonical(entry)
        assert isinstance(parsed, dict)
        assert parsed["schema"] == 1 and parsed["kind"] == type(each).__name__.lower()
        assert record.decode(entry) == each


def test_where_a_fleets_call_went_comes_back_also_from_a_packed_table() -> None:
    placed = record.Placement(replica="engine-1", hint="PREFIX_MATCH", ranked="engine-0", matched_tokens=512)
    attempts = (record.Attempt(capability="fleet", placement=placed), record.Attempt(capability="sim"))
    one = msgspec.structs.replace(outcome(1), attempts=attempts)
    assert record.decode(record.encode(one)) == one
    assert b'"placement":{"hint":"PREFIX_MATCH","matched_tokens":512,"ranked":"engine-0","replica":"engine-1"}' in (
        record.encode(one)
    )
    assert b"placement" not in record.encode(outcome(1))
    long = msgspec.structs.replace(outcome(1), attempts=attempts * 1_000)
    packed = record.encode(long)
    assert len(packed) <= ENTRY_BYTES_MAX and b'"packed"' in packed
    assert record.decode(packed) == long


def test_fields_at_their_defaults_are_left_out() -> None:
    minimal = record.Outcome(
        schema=1,
        request_id="req_" + "0" * 32,
        tenant="t",
        time=record.rfc3339(Instant(0)),
        reason_code="BUNDLE_EXPIRED",
        status=503,
    )
    assert record.encode(minimal) == (
        b'{"kind":"outcome","reason_code":"BUNDLE_EXPIRED","request_id":"req_00000000000000000000000000000000",'
        b'"schema":1,"status":503,"tenant":"t","time":"1970-01-01T00:00:00.000000Z"}'
    )


def test_times_have_microseconds_and_are_utc() -> None:
    assert record.rfc3339(Instant(1_764_500_000_000_001)) == "2025-11-30T10:53:20.000001Z"
    assert record.rfc3339(Instant(1_764_500_000_999_999)) == "2025-11-30T10:53:20.999999Z"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 3_000), st.integers(1, 64))
def test_a_decision_of_any_number_of_capabilities_fits_a_leaf_and_comes_back_whole(
    capabilities: int, name: int
) -> None:
    rows = tuple(record.PolicyRow(capability="c" * name + str(at), recent_faults=at) for at in range(capabilities))
    decision = msgspec.structs.replace(intent(1), policy=rows)
    entry = record.encode(decision)
    assert len(entry) <= ENTRY_BYTES_MAX
    assert record.decode(entry) == decision
    parsed = parse_canonical(entry)
    assert isinstance(parsed, dict)
    assert ("detached" in parsed) is ("policy" not in parsed and bool(rows))
    assert {"request", "plan"} <= set(parsed), "the policy goes alone"


def test_an_outcome_of_very_many_attempts_fits_a_leaf_and_comes_back_whole() -> None:
    attempts = tuple(record.Attempt(capability="c" * 60, latency_ms=at) for at in range(2_000))
    for detail in ("d", "d" * 70_000):
        long = msgspec.structs.replace(outcome(1), attempts=attempts, detail=detail)
        entry = record.encode(long)
        assert len(entry) <= ENTRY_BYTES_MAX
        assert record.decode(entry) == long


def test_what_cannot_be_packed_either_leaves_its_digest_and_keeps_the_rest() -> None:
    rows = tuple(record.PolicyRow(capability=record.digest(b"%d" % at), recent_faults=at) for at in range(20_000))
    decision = msgspec.structs.replace(intent(1), policy=rows)
    entry = record.encode(decision)
    read = record.decode(entry)
    assert len(entry) <= ENTRY_BYTES_MAX
    assert isinstance(read, record.Intent) and read.detached is not None
    assert (read.detached.fields, read.detached.packed) == (("policy",), None)
    tables = canonical({"policy": rows})
    assert (read.detached.digest, read.detached.bytes) == (record.digest(tables), len(tables))
    assert (read.request, read.plan) == (decision.request, decision.plan)


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "0" * 64},
        {"bytes": 3},
        {"bytes": record.TABLES_BYTES_MAX + 1},
        {"packed": "no base64!"},
        {"packed": "AAAA"},
        {"fields": ("workload",)},
    ],
    ids=str,
)
def test_packed_tables_that_are_not_those_of_their_digest_are_not_read(change: dict[str, object]) -> None:
    rows = tuple(record.PolicyRow(capability=f"capability-{at}", recent_faults=at) for at in range(2_000))
    parsed = msgspec.json.decode(record.encode(msgspec.structs.replace(intent(1), policy=rows)))
    parsed["detached"] |= change
    with pytest.raises(msgspec.ValidationError):
        record.decode(msgspec.json.encode(parsed))


def test_a_head_that_cannot_fit_is_an_error_and_never_a_cut_record() -> None:
    with pytest.raises(record.RecordTooLong):
        record.encode(msgspec.structs.replace(intent(1), workload="w" * 70_000))


def test_what_is_not_a_record_is_not_read_as_one() -> None:
    for entry in (
        b"{}",
        b'{"kind":"other"}',
        record.encode(outcome(1)).replace(b'"status":200', b'"status":"200"'),
    ):
        with pytest.raises(msgspec.ValidationError):
            record.decode(entry)
