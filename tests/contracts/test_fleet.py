"""A fleet in a bundle: its form, what must hold between its parts, and where its replicas may be."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.contracts.decode import BundleRejected
from terraflow.contracts.verify import verify_bundle
from tests.contracts.samples import KEYS, NOW, document, signed


def replicas(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"id": f"engine-{at}", "endpoint": f"http://10.0.0.{at + 1}:8000/v1"} | change
        for at, change in enumerate(changes or ({}, {}))
    ]


def fleet_in(**changes: Any) -> dict[str, Any]:
    """A bundle whose first capability is a fleet; `replicas` and the fleet's fields, or the capability's."""
    value = document()
    entry = value["capabilities"][0]
    of_fleet = {key: changes.pop(key) for key in tuple(changes) if key in FLEET_FIELDS}
    entry.pop("script", None)
    entry |= {
        "provider": "fleet",
        "boundary": "private",
        "endpoint": None,
        "secret": None,
        "fleet": {"replicas": replicas()} | of_fleet,
    } | changes
    return value


FLEET_FIELDS = {
    "replicas", "tokenizer", "scheme", "block_tokens", "hint_tenant", "hint_model", "adapter", "pressure_max_percent",
}  # fmt: skip


def problems(value: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(BundleRejected) as refused:
        verify_bundle(signed(value), KEYS, NOW, inside_boundary=lambda host: host.startswith("10."))
    return [(problem.field, problem.rule) for problem in refused.value.problems]


def test_a_fleet_with_everything_said_is_accepted() -> None:
    member = {"enabled": False, "labels": {"pool": "prefill"}, "events": "tcp://10.0.0.1:5557"}
    value = fleet_in(
        replicas=replicas({}, member | {"replay": "tcp://10.0.0.1:5558", "metrics": "http://10.0.0.1:8000/metrics"}),
        tokenizer="small",
        scheme="vllm",
        block_tokens=32,
        hint_tenant="team",
        hint_model="model-1",
        adapter="sql",
        pressure_max_percent=80,
    )
    bundle = verify_bundle(signed(value), KEYS, NOW, inside_boundary=lambda host: host.startswith("10."))
    fleet = next(c.fleet for c in bundle.capabilities.values() if c.fleet is not None)
    assert [replica.enabled for replica in fleet.replicas] == [True, False]
    assert fleet.pressure_max_percent == 80


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"fleet": None}, "fleet", "kind fleet has one"),
        ({"provider": "openai", "endpoint": "http://10.0.0.1/v1"}, "fleet", "and no other"),
        ({"endpoint": "http://10.0.0.1/v1"}, "endpoint", "replicas have"),
        ({"replicas": replicas({"id": "a"}, {"id": "a"})}, "fleet.replicas[a]", "2 times"),
        ({"replicas": replicas({"enabled": False})}, "fleet.replicas", "switched off"),
        ({"replicas": replicas({"endpoint": "http://8.8.8.8/v1"})}, "fleet.replicas[engine-0].endpoint", "OUTSIDE"),
        ({"replicas": replicas({"endpoint": "ftp://10.0.0.1"})}, "fleet.replicas[engine-0].endpoint", "http or https"),
        (
            {"replicas": replicas({"metrics": "http://8.8.8.8/m", "events": "tcp://10.0.0.1:1"})},
            "fleet.replicas[engine-0].metrics",
            "OUTSIDE",
        ),
        ({"replicas": replicas({"events": "tcp://8.8.8.8:5557"})}, "fleet.replicas[engine-0].events", "OUTSIDE"),
        ({"replicas": replicas({"events": "http://10.0.0.1:1"})}, "fleet.replicas[engine-0].events", "tcp://"),
        ({"replicas": replicas({"events": "tcp://10.0.0.1"})}, "fleet.replicas[engine-0].events", "tcp://"),
        ({"replicas": replicas({"replay": "tcp://10.0.0.1:1"})}, "fleet.replicas[engine-0].replay", "not given"),
        ({"replicas": replicas({"metrics": "http://10.0.0.1/m"})}, "fleet.replicas[engine-0].metrics", "not given"),
        ({"tokenizer": "small"}, "fleet.scheme", "tokenizer"),
        ({"scheme": "vllm"}, "fleet.scheme", "tokenizer"),
        ({"dialect": "budgeted_thinking"}, "dialect", "none of fleet"),
    ],
)
def test_what_does_not_hold_is_refused_with_its_place(changes: dict[str, Any], field: str, says: str) -> None:
    value = fleet_in(**changes)
    name = value["capabilities"][0]["id"]
    found = problems(value)
    assert [place for place, _ in found] == [f"capabilities[{name}].{field}"]
    assert says in found[0][1]


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": []},
        {"replicas": replicas({"id": "no spaces"})},
        {"replicas": replicas({"id": 7})},
        {"replicas": [{"id": "a"}]},
        {"replicas": replicas({"weight": 1})},
        {"pressure_max_percent": 0},
        {"pressure_max_percent": 101},
        {"block_tokens": 0},
        {"replicas": [{"id": f"r{at}", "endpoint": "http://10.0.0.1/v1"} for at in range(257)]},
    ],
)
def test_another_form_is_refused(changes: dict[str, Any]) -> None:
    value = fleet_in(**changes)
    assert problems(value)[0][0].startswith(f"capabilities[{value['capabilities'][0]['id']}].fleet")
