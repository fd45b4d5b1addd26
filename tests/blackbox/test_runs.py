"""Runs: what a caller says of the run that a request belongs to is recorded with it, and limits nothing yet."""

from __future__ import annotations

import json

import pytest

from terraflow.core.reasons import ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CHAT, body_of, headers_of, raw_request, request_bytes
from tests.harness.checks import Checks

RUN = "X-TerraFlow-Run-Id"
BUDGET = "X-TerraFlow-Run-Budget-Usd"
LONGEST = "r" * 128


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(bundle.document(purpose("plain", sim("one"))))


@pytest.mark.parametrize("run", ["a", "7", "nightly:2026-11-30.1", "req_0", LONGEST])
def test_a_run_is_recorded(run: str, site: Site, checks: Checks) -> None:
    response = site.caller.ask(headers=headers_of(run=run))
    checks.answered(site.caller, response, capability="one")
    decision = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]
    assert decision["run"] == {"id": run}


@pytest.mark.parametrize(
    ("said", "micro_usd"),
    [("0", 0), ("0.000001", 1), ("2.5", 2_500_000), ("12", 12_000_000), ("1000000000", 1_000_000_000_000_000)],
)
def test_a_runs_budget_is_recorded_to_the_micro_dollar(said: str, micro_usd: int, site: Site, checks: Checks) -> None:
    response = site.caller.ask(headers=headers_of(run="r1", run_budget=said))
    checks.answered(site.caller, response, capability="one")
    decision = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]
    assert decision["run"] == {"id": "r1", "budget_micro_usd": micro_usd}


def test_without_a_run_nothing_is_recorded_of_one(site: Site) -> None:
    response = site.caller.ask()
    assert "run" not in site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]


@pytest.mark.parametrize("run", ["", "-a", ".a", ":a", "a b", "a/b", "a,b", "caf\u00e9", LONGEST + "r"])
def test_what_is_no_run(run: str, site: Site, checks: Checks) -> None:
    refused(site, checks, RUN, f"{RUN}: {run}")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "-1",
        "+1",
        "1e3",
        ".5",
        "1.",
        "01",
        "0.0000001",
        "1,5",
        "$1",
        "NaN",
        "inf",
        "1 2",
        "1000000000.000001",
        "9" * 11,
    ],
)
def test_what_is_no_budget(said: str, site: Site, checks: Checks) -> None:
    refused(site, checks, BUDGET, f"{RUN}: r1", f"{BUDGET}: {said}")


def test_a_budget_names_its_run(site: Site, checks: Checks) -> None:
    refused(site, checks, BUDGET, f"{BUDGET}: 1")


@pytest.mark.parametrize("name", [RUN, BUDGET])
def test_one_of_each(name: str, site: Site, checks: Checks) -> None:
    refused(site, checks, name, f"{RUN}: 1", f"{BUDGET}: 1", f"{name}: 1", named=False)


def refused(site: Site, checks: Checks, field: str, *lines: str, named: bool = True) -> None:
    lines = (f"Authorization: Bearer {site.caller.api_key}", *lines)
    reply = raw_request(site.plane, request_bytes(lines, json.dumps(body_of()).encode()))
    assert reply is not None
    code = checks.raised.wire(reply.status, reply.headers, reply.body, f"/v1{CHAT}")
    assert code is ModelApi.INVALID_REQUEST
    body = json.loads(reply.body)
    checks.ungoverned_parts(reply.status, reply.headers, body, ModelApi.INVALID_REQUEST, field.lower(), named)
