"""What a bundle is refused for, that everything is listed, and that there is no other way to have one."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from terraflow.contracts.bundle import Bundle
from terraflow.contracts.decode import BundleRejected
from terraflow.contracts.verify import verify_bundle
from terraflow.core.budget import Level, Window
from terraflow.core.canonical import canonical_json
from terraflow.core.reasons import Governed
from terraflow.core.signature import sign_envelope
from terraflow.core.types import DataClass, Instant, Priority
from tests.contracts.samples import KEY, KEYS, NOW, OTHER, bundle, capability, contract, document, external, signed


def rejected(value: dict[str, Any], **options: Any) -> dict[str, str]:
    with pytest.raises(BundleRejected) as found:
        verify_bundle(signed(value), KEYS, NOW, **options)
    return {problem.field: problem.rule for problem in found.value.problems}


def test_a_sound_bundle_is_indexed() -> None:
    made = bundle(budgets=[{"tenant": "acme", "level": "tenant", "of": "acme", "window": "month", "limit_usd": "2.5"}])
    assert made.sequence == 7
    assert (
        made.digest
        == hashlib.sha256(
            canonical_json(
                document(
                    budgets=[{"tenant": "acme", "level": "tenant", "of": "acme", "window": "month", "limit_usd": "2.5"}]
                )
            )
        ).hexdigest()
    )
    assert made.expires_at == Instant(1_796_083_200_000_000)
    assert list(made.capabilities) == ["alpha", "beta", "gamma"]
    found = made.workloads["acme", "assistant"]
    assert (found.priority, found.business_unit, found.data_class_max) == (
        Priority.P1,
        "sales",
        DataClass.RESTRICTED,
    )
    limits = {(rule.level, rule.of, rule.window): rule.limit_micro_usd for rule in found.budgets}
    assert len(limits) == 6
    assert limits[Level.TENANT, "acme", Window.MONTH] == 2_500_000
    assert limits[Level.BUSINESS_UNIT, "sales", Window.HOUR] is None
    assert made.applications["acme", "web"].default_workload == "assistant"
    assert made.notices == ()


def test_a_bundle_cannot_be_had_unverified_or_changed() -> None:
    with pytest.raises(TypeError):
        Bundle(document())  # type: ignore[call-arg, arg-type]
    with pytest.raises(BundleRejected):
        Bundle(canonical_json(document()), KEYS, NOW)
    made = bundle()
    with pytest.raises(AttributeError):
        made.sequence = 8
    with pytest.raises(AttributeError):
        del made.sequence
    with pytest.raises(TypeError):
        made.workloads["acme", "x"] = made.workloads["acme", "assistant"]  # type: ignore[index]
    for duplicate in (lambda: copy.copy(made), lambda: pickle.dumps(made)):
        with pytest.raises((TypeError, AttributeError)):
            duplicate()


def test_only_a_trusted_key_and_the_right_type_of_payload_count() -> None:
    assert "signature" in rejected_envelope(signed(document(), OTHER))
    assert "signature" in rejected_envelope(sign_envelope(canonical_json(document()), "application/json", KEY))
    assert "payload" in rejected_envelope(
        sign_envelope(b" " + canonical_json(document()), "application/vnd.terraflow.bundle+json", KEY)
    )


def rejected_envelope(envelope: bytes) -> set[str]:
    with pytest.raises(BundleRejected) as found:
        verify_bundle(envelope, KEYS, NOW)
    return {problem.field for problem in found.value.problems}


def test_an_expired_bundle_is_not_activated_but_still_read_when_it_is_the_active_one() -> None:
    envelope = signed(document())
    later = Instant(1_796_083_200_000_000)
    with pytest.raises(BundleRejected, match="expires"):
        verify_bundle(envelope, KEYS, later)
    assert verify_bundle(envelope, KEYS, later, active=True).expires_at == later
    assert verify_bundle(envelope, KEYS, Instant(later - 1)).expires_at == later


def test_all_problems_are_listed_and_no_value_is_repeated() -> None:
    secret = "sk-live-0123456789abcdef"
    value = document(
        capabilities=[
            capability("alpha", secret=secret),
            capability("beta", lifecycle=secret, tier="standard"),
            {key: value for key, value in external("gamma").items() if key != "tools"},
        ],
        sequence="7",
        surprise=secret,
    )
    with pytest.raises(BundleRejected) as found:
        verify_bundle(signed(value), KEYS, NOW)
    fields = {problem.field for problem in found.value.problems}
    assert fields == {
        "surprise",
        "sequence",
        "capabilities[alpha].secret",
        "capabilities[beta].lifecycle",
        "capabilities[gamma]",
    }
    assert secret not in str(found.value)
    assert all(secret not in problem.rule for problem in found.value.problems)


@pytest.mark.parametrize(
    ("wrong", "field", "rule"),
    [
        ({"lifecycle": "secret"}, ".lifecycle", "is not one of candidate, approved, deprecated, retired"),
        ({"sensitive_types": ["secret"]}, ".sensitive_types[0]", "is not one of "),
        ({"jurisdictio": "secret"}, "", "Object contains unknown field `jurisdictio`: did you mean jurisdiction?"),
        ({"surprise": "secret"}, "", "Object contains unknown field `surprise`"),
    ],
)
def test_what_may_stand_there_instead_is_said(wrong: dict[str, Any], field: str, rule: str) -> None:
    found = rejected(document(capabilities=[capability("alpha") | wrong, external("gamma")]))
    said = found[f"capabilities[alpha]{field}"]
    assert said == rule or (said.startswith(rule) and rule.endswith("of ")), said
    assert "secret" not in said
    keyed = rejected(document(class_defaults={"secret": "public"}))["class_defaults"]
    assert keyed == "is not one of the values it may have"


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    *steps, last = path.split(".")

    def apply(target: Any) -> None:
        for step in steps:
            target = target[int(step) if step.isdigit() else step]
        target[last] = value

    return apply


C, K, W, A = "contracts.0", "capabilities.0", "workloads.0", "applications.0"
X = "capabilities.2"
BREACHES: list[tuple[str, str, Any]] = [
    # (where the problem is said to be, what is changed, to what)
    ("expires", "expires", "2026-05-01T00:00:00Z"),
    ("tenants[0].id", "tenants.0.id", "Acme"),
    ("applications[web].tenant", f"{A}.tenant", "nobody"),
    ("applications[web].workloads", f"{A}.workloads", ["assistant", "ghost"]),
    ("applications[web].default_workload", f"{A}.default_workload", "ghost"),
    ("workloads[0].id", f"{W}.id", "UPPER"),
    ("workloads[0].id", f"{W}.id", "assistant\n"),
    ("workloads[assistant].tenant", f"{W}.tenant", "nobody"),
    ("workloads[assistant].business_unit", f"{W}.business_unit", "main"),
    ("workloads[assistant].contract", f"{W}.contract", "ghost"),
    ("workloads[assistant].priority", f"{W}.priority", 4),
    ("workloads[alpha]", f"{W}.id", "alpha"),
    ("contracts[starter].tenant", f"{C}.tenant", "nobody"),
    ("contracts[starter].expires_at", f"{C}.expires_at", "2026-01-01T00:00:00Z"),
    ("contracts[starter].effective_from", f"{C}.effective_from", "2026-01-01T00:00:00"),
    ("contracts[starter].effective_from", f"{C}.effective_from", "yesterday"),
    ("contracts[starter].approver", f"{C}.approver", None),
    ("contracts[starter].approver", f"{C}.approver", "asha"),
    ("contracts[starter].capabilities", f"{C}.capabilities", ["alpha", "beta", "ghost"]),
    ("contracts[starter].families", f"{C}.families", ["*", "sim"]),
    ("contracts[starter].jurisdictions", f"{C}.jurisdictions", ["*", "in"]),
    ("contracts[starter].tiers", f"{C}.tiers", ["basic", "premium"]),
    ("contracts[starter].default_tier", f"{C}.default_tier", "gold"),
    ("contracts[starter].aliases", f"{C}.aliases", {"gpt-4o": "ghost"}),
    ("contracts[starter].aliases", f"{C}.aliases", {"alpha": "beta"}),
    ("contracts[starter].aliases", f"{C}.aliases", {"assistant": "beta"}),
    ("contracts[starter].safe_path", f"{C}.safe_path", "ghost"),
    ("contracts[starter].fallback", f"{C}.fallback", {"alpha": ["ghost"]}),
    ("contracts[starter].fallback", f"{C}.fallback", {"ghost": ["alpha"]}),
    ("contracts[starter].fallback.alpha", f"{C}.fallback", {"alpha": ["alpha"]}),
    ("contracts[starter].fallback.alpha[beta]", f"{C}.fallback", {"alpha": ["beta", "beta"]}),
    ("contracts[starter].baseline_capability", f"{C}.baseline_capability", "ghost"),
    ("contracts[starter].class_floor.pci", f"{C}.class_floor", {"pci": "confidential"}),
    ("contracts[starter].data_classes[2]", f"{C}.data_classes", ["public", "internal", "secret"]),
    ("contracts[starter].sensitive_types[0]", f"{C}.sensitive_types", ["dna"]),
    ("contracts[starter].request_limit_usd", f"{C}.request_limit_usd", "1e3"),
    ("contracts[starter].request_limit_usd", f"{C}.request_limit_usd", "0.0000001"),
    ("contracts[starter].output.json_schema", f"{C}.output", {"json_schema": {"type": "objec"}}),
    ("contracts[starter].output.json_schema", f"{C}.output", {"json_schema": {"$ref": "https://x.test/s"}}),
    ("contracts[starter].output.json_schema", f"{C}.output", {"json_schema": {"not": {"$ref": "file:///etc/x"}}}),
    ("contracts[starter].output.json_schema", f"{C}.output", {"json_schema": {"$ref": "#/$defs/none"}}),
    ("contracts[starter].output.json_schema", f"{C}.output", {"json_schema": {"pattern": "(?=a)b"}}),
    ("contracts[starter]", f"{C}.stray", 1),
    ("capabilities[alpha].output_tokens_max", f"{K}.output_tokens_max", 100_001),
    ("capabilities[alpha].endpoint", f"{K}.endpoint", "http://10.0.0.1/v1"),
    ("capabilities[alpha].secret", f"{K}.secret", "env:SOME_KEY"),
    ("capabilities[alpha].tools", f"{K}.tools", "yes"),
    ("capabilities[alpha].tools", f"{K}.tools", 1),
    ("capabilities[alpha].prices.input", f"{K}.prices", {"input": -1, "output": 1}),
    ("capabilities[alpha].terms.retention_days", f"{K}.terms", {"trains": False, "retention_days": -1}),
    ("capabilities[gamma].script", f"{X}.script", {"acts": [{}]}),
    ("capabilities[gamma].endpoint", f"{X}.endpoint", "http://models.example/v1"),
    ("capabilities[gamma].endpoint", f"{X}.endpoint", "https://user:pass@models.example/v1"),
    ("capabilities[gamma].endpoint", f"{X}.endpoint", "https://models.example/v1?key=1"),
    ("capabilities[gamma].endpoint", f"{X}.endpoint", "ftp://models.example"),
    ("capabilities[gamma].endpoint", f"{X}.endpoint", "https://[::1/v1"),
    ("capabilities[gamma].endpoint", f"{X}.endpoint", "https://models.example/a\nb"),
    ("capabilities[gamma].endpoint", f"{X}.boundary", "private"),
    ("capabilities[gamma].dialect", f"{X}.dialect", "budgeted_thinking"),
    ("capabilities[alpha].dialect", f"{K}.dialect", "self_hosted"),
    ("capabilities[alpha]", "capabilities.1.id", "alpha"),
    ("budgets[0].of", "budgets", [
        {"tenant": "acme", "level": "workload", "of": "sales", "window": "hour", "limit_usd": "1"}]),
    ("budgets[0].of", "budgets", [
        {"tenant": "umbra", "level": "business_unit", "of": "sales", "window": "hour", "limit_usd": "1"}]),
    ("budgets[acme/tenant/acme/hour]", "budgets", 2 * [
        {"tenant": "acme", "level": "tenant", "of": "acme", "window": "hour", "limit_usd": "1"}]),
    ("schema", "schema", 2),
    ("sequence", "sequence", 0),
    ("tenants", "tenants", {}),
    ("class_defaults", "class_defaults", {"dna": "public"}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "path", "value"), BREACHES, ids=lambda part: str(part)[:48])
def test_each_breach_is_refused_where_it_is(field: str, path: str, value: Any) -> None:
    broken = copy.deepcopy(document())
    change(path, value)(broken)
    assert field in rejected(broken)


def test_a_contract_that_is_not_executable_or_anothers_is_left_for_the_request() -> None:
    for terms in (
        {"state": "draft", "approver": None},
        {"state": "superseded"},
        {"effective_from": "2026-11-01T00:00:00Z"},
        {"expires_at": "2026-02-01T00:00:00Z"},
        {"tenant": "umbra"},
    ):
        assert bundle(contracts=[contract(**terms)]).workloads["acme", "assistant"].contract


def test_a_fallback_cycle_is_no_breach_since_the_plan_ends_it() -> None:
    assert bundle(contracts=[contract(fallback={"alpha": ["beta"], "beta": ["alpha"]})])


def test_a_private_address_outside_the_boundary_is_refused_with_its_code() -> None:
    value = document()
    value["capabilities"][2] |= {"boundary": "private", "endpoint": "http://198.51.100.7:8000/v1"}
    found = rejected(value, inside_boundary=lambda host: host.startswith("10."))
    assert found["capabilities[gamma].endpoint"].startswith(Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY.value)
    value["capabilities"][2]["endpoint"] = "http://10.1.2.3:8000/v1"
    assert verify_bundle(signed(value), KEYS, NOW, inside_boundary=lambda host: host.startswith("10."))


def test_notices_name_what_will_be_excluded() -> None:
    value = document()
    value["capabilities"][0]["lifecycle"] = "deprecated"
    value["capabilities"][2]["prices"] = None
    made = verify_bundle(signed(value), KEYS, NOW)
    assert [notice.field for notice in made.notices] == [
        "contracts[starter].capabilities",
        "capabilities[gamma].prices",
    ]


def test_the_bundles_table_and_the_contracts_floor_give_the_classes() -> None:
    made = bundle(
        class_defaults={"undeclared": "public", "pii": "internal"},
        contracts=[contract(class_floor={"pii": "restricted", "undeclared": "internal"})],
    )
    given = made.workloads["acme", "assistant"].class_of
    assert given["pii"] is DataClass.RESTRICTED
    assert given["undeclared"] is DataClass.INTERNAL
    assert given["pci"] is DataClass.RESTRICTED
