"""What is told about a bundle that is sound: the refusals that are certain before any request."""

from __future__ import annotations

from typing import Any

from terraflow.app.expiry import DAY
from terraflow.app.notices import find_notices, notices_here
from terraflow.contracts.bundle import Bundle
from terraflow.core.types import Instant
from tests.contracts.samples import NOW, bundle, capability, contract, external


def told(of: Bundle, now: int = NOW, secrets: dict[str, str] | None = None) -> dict[str, str]:
    found = find_notices(of, Instant(now), (secrets or {}).get)
    return {notice.field: notice.rule for notice in found}


def with_contract(**changes: Any) -> Bundle:
    return bundle(contracts=[contract(**changes)])


def test_a_sound_bundle_has_none() -> None:
    private = [capability(name) for name in ("alpha", "beta", "gamma")]
    assert told(bundle(capabilities=private)) == {}


def test_what_time_makes_of_contracts_and_of_the_bundle() -> None:
    later = with_contract(effective_from="2026-07-01T00:00:00Z")
    assert "is 2026-07-01T00:00:00.000000Z: nothing runs" in told(later)["contracts[starter].effective_from"]
    past = with_contract(expires_at="2026-02-01T00:00:00Z")
    assert told(past)["contracts[starter].expires_at"] == "has passed: nothing runs under it"
    assert "is draft: nothing runs" in told(with_contract(state="draft", approver=None))["contracts[starter].state"]
    sound = bundle()
    assert "expires" not in told(sound, sound.expires_at - 15 * DAY)
    assert told(sound, sound.expires_at - 3 * DAY)["expires"].startswith("is in 3 days: every request is refused")
    assert told(sound, sound.expires_at - 1)["expires"].startswith("is in less than two days")
    assert told(sound, sound.expires_at)["expires"].startswith("has passed")


def test_credentials_that_are_not_set_are_told_for_what_is_used() -> None:
    outside = [capability("alpha"), external("beta"), external("gamma", enabled=False), external("unused")]
    sound = bundle(capabilities=outside)
    assert list(told(sound)) == ["capabilities[beta].secret"]
    assert told(sound)["capabilities[beta].secret"].startswith("env:SAMPLE_KEY is not set here")
    assert told(sound, secrets={"env:SAMPLE_KEY": "x"}) == {}


def test_a_workload_that_no_model_can_answer_is_told_with_what_excludes_each() -> None:
    path = "workloads[acme/assistant]"
    for changes, why in (
        ({"jurisdictions": ["eu"]}, "alpha JURISDICTION_NOT_ALLOWED"),
        ({"families": ["other"]}, "alpha MODEL_FAMILY_NOT_ALLOWED"),
        ({"capabilities": []}, "its contract names none"),
    ):
        assert why in told(with_contract(**changes))[path]
    alone = {"contracts": [contract(capabilities=["alpha"])]}
    for entry, why in (
        (external("alpha"), "alpha PROVIDER_DISABLED SECRET_MISSING"),
        (capability("alpha", enabled=False), "alpha PROVIDER_DISABLED"),
        (capability("alpha", lifecycle="retired"), "alpha LIFECYCLE_NOT_APPROVED"),
        (external("alpha", prices=None, secret=None), "alpha PROVIDER_DISABLED PRICE_UNKNOWN"),
    ):
        others = [capability("beta"), capability("gamma")]
        assert why in told(bundle(capabilities=[entry, *others], **alone))[path], why
    bursting = {"contracts": [contract(capabilities=["alpha"], egress="burst")]}
    outside = [external("alpha"), capability("beta"), capability("gamma")]
    alone_outside = told(bundle(capabilities=outside, **bursting), secrets={"env:SAMPLE_KEY": "x"})
    assert "alpha BURST_ONLY_ON_CAPACITY" in alone_outside[path]


def test_a_contract_of_another_tenant_and_one_without_classes_are_told() -> None:
    elsewhere = bundle(
        contracts=[contract(tenant="umbra", data_classes=[])],
    )
    found = find_notices(elsewhere, NOW, lambda _: None)
    rules = [notice.rule for notice in found if notice.field == "workloads[acme/assistant].contract"]
    assert rules[0].startswith("starter is of tenant umbra") and "TENANT_MISMATCH" in rules[0]
    assert rules[1] == "starter accepts no data class: every request is refused"


def test_a_host_without_an_address_is_told() -> None:
    named = capability("alpha", provider="openai", endpoint="http://no-such-host.invalid:8000/v1")
    local = capability("beta", provider="openai", endpoint="http://localhost:8000/v1")
    literal = capability("gamma", provider="openai", endpoint="http://10.0.0.7:8000/v1")
    found = {notice.field: notice.rule for notice in notices_here(bundle(capabilities=[named, local, literal]))}
    hosts = {field: rule for field, rule in found.items() if field.endswith(".endpoint")}
    assert list(hosts) == ["capabilities[alpha].endpoint"]
    assert hosts["capabilities[alpha].endpoint"].startswith("no-such-host.invalid does not resolve here")


def test_a_replica_whose_host_has_no_address_is_told_by_its_place() -> None:
    lost = {"id": "r0", "endpoint": "http://no-such-host.invalid/v1"}
    members = {"replicas": [lost, {"id": "r1", "endpoint": "http://127.0.0.1/v1"}]}
    entry = capability("alpha", provider="fleet", fleet=members, script=None)
    sound = bundle(capabilities=[entry, capability("beta"), capability("gamma")])
    found = [notice.field for notice in notices_here(sound) if notice.field.endswith(".endpoint")]
    assert found == ["capabilities[alpha].fleet.replicas[r0].endpoint"]
