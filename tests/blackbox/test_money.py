"""Step 14 and the money of step 18: what is reserved, what is refused, what is posted."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth
from tests.harness import bundle
from tests.harness.bundle import Json, limit, purpose, remote, sim
from tests.harness.caller import headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import Gate, Upstreams, answer, held

OUTPUT_MAX = 100
USED: Json = {"usage": {"input": 30, "output": 20}}
COST = 30 + 2 * 20
CHEAP = sim("cheap", {"fail": "malformed"}, prices={"input": 1, "output": 1})
KINDS = sim(
    "kinds",
    {"usage": {"input": 100, "cached_input": 50, "cache_write": 10, "output": 7, "reasoning": 3}},
    prices={
        "input": 2_000_000,
        "cached_input": 200_000,
        "cache_write": 2_500_000,
        "output": 8_000_000,
        "reasoning": 9_000_000,
    },
)


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(
        bundle.document(
            purpose("plain", sim("one", USED)),
            purpose("small-hour", sim("one", USED)),
            purpose("small-month", sim("one", USED)),
            purpose("broke", sim("one", USED)),
            purpose("small-unit", sim("one", USED), unit="poor"),
            purpose("small-tenant", sim("one", USED), tenant="umbra"),
            purpose("fallback", CHEAP, sim("dear", USED)),
            purpose("priced", KINDS),
            purpose("free", sim("costs-nothing", USED, prices={"input": 0, "output": 0})),
            purpose("over", sim("talks", {"usage": {"input": 5_000, "output": 9_000}})),
            budgets=[
                limit("workload", "small-hour", "hour", "0.0003"),
                limit("workload", "small-month", "month", "0.0003"),
                limit("workload", "broke", "hour", "0.000001"),
                limit("business_unit", "poor", "hour", "0.0003"),
                limit("tenant", "umbra", "month", "0.0003", tenant="umbra"),
                limit("workload", "fallback", "hour", "0.0001"),
            ],
        )
    )


@pytest.mark.parametrize(
    ("workload", "detail"),
    [("small-hour", "workload_hour"), ("small-month", "workload_month"), ("small-unit", "business_unit_hour")],
)
def test_a_budget_that_has_no_room(workload: str, detail: str, site: Site, checks: Checks) -> None:
    served = 0
    while (response := site.caller.ask(workload)).status_code == 200:
        checks.answered(site.caller, response, capability="one", cost=COST)
        served += 1
    assert served == 1, "300 holds one worst case of some 270 beside nothing, and none beside the 70 that were used"
    checks.refused(site.caller, response, Governed.BUDGET_EXHAUSTED, detail=detail)
    cheaper = site.caller.ask(workload, max_tokens=1)
    checks.answered(site.caller, cheaper, capability="one", cost=COST)


@every_mouth
def test_a_budget_that_no_request_fits(site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask("broke"), Governed.BUDGET_EXHAUSTED, detail="workload_hour")


def test_a_tenants_budget(site: Site, checks: Checks) -> None:
    theirs = site.caller_with(site.folder.issue_key("umbra"))
    checks.answered(theirs, theirs.ask("small-tenant"), capability="one", cost=COST)
    checks.refused(theirs, theirs.ask("small-tenant"), Governed.BUDGET_EXHAUSTED, detail="tenant_month")
    checks.answered(site.caller, site.caller.ask("plain"), capability="one", cost=COST)


@every_mouth
def test_a_fallback_that_the_budget_cannot_pay_ends_the_recovery(site: Site, checks: Checks) -> None:
    response = site.caller.ask("fallback")
    checks.refused(site.caller, response, Governed.BUDGET_EXHAUSTED, detail="workload_hour", cost=1)


def test_each_kind_of_token_at_its_price(site: Site, checks: Checks) -> None:
    cost = 100 * 2 + 5 * 2 + 25 + 7 * 8 + 3 * 9
    body = checks.answered(site.caller, site.caller.ask("priced"), capability="kinds", cost=cost)
    assert body["usage"]["prompt_tokens"] == 160
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 50
    assert body["usage"]["completion_tokens"] == 10
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


@every_mouth
def test_a_true_zero_stays_zero(site: Site, checks: Checks) -> None:
    checks.answered(site.caller, site.caller.ask("free"), capability="costs-nothing", cost=0)


def test_usage_above_the_reservation_is_posted_and_marked(site: Site, checks: Checks) -> None:
    response = site.caller.ask("over")
    checks.answered(site.caller, response, capability="talks", cost=5_000 + 2 * 9_000)
    outcome = site.caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]
    assert outcome["attempts"][0]["overrun"] is True


def test_a_storm_never_spends_above_the_limit(launch: Launch, checks: Checks) -> None:
    act: Json = {"latency_ms": 5, "usage": {"input": 60, "output": 100}}
    rows = [limit("workload", "plain", "hour", "0.002"), limit("tenant", "acme", "month", "0.003")]
    site = launch(bundle.document(purpose("plain", sim("one", act)), budgets=rows))
    with ThreadPoolExecutor(16) as threads:
        responses = list(threads.map(lambda _: site.caller.ask(), range(64)))
    served = [response for response in responses if response.status_code == 200]
    refused = [response for response in responses if response.status_code != 200]
    assert served and refused
    for response in refused:
        assert checks.raised(response) is Governed.BUDGET_EXHAUSTED
    assert site.folder.money() == (0, 260 * len(served))
    assert 260 * len(served) <= 2_000


def test_what_runs_is_reserved_at_its_worst_case(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer(usage={"prompt_tokens": 1, "completion_tokens": 1})))
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port))))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(site.caller.ask, max_tokens=40)
        until(lambda: vendor.requests)
        reserved = site.folder.money()
        gate.open()
        response = running.result()
    checks.answered(site.caller, response, capability="engine", cost=1 + 2)
    decision = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]
    assert reserved == (decision["request"]["bytes"] + 40 * 2, 0)
    assert reserved[0] == decision["reserved_micro_usd"]
    assert vendor.requests[0].body["max_tokens"] == 40
    assert site.folder.money() == (0, 3)


@pytest.fixture
def unanswering() -> Iterator[int]:
    """A port on which connections are neither taken nor refused, as behind a firewall: its backlog is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        place = listening.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(place)
        yield place[1]
        for each in waiting:
            each.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_while_a_connection_is_made_nothing_is_spent_whoever_ends_it(
    stream: bool, unanswering: int, launch: Launch, checks: Checks
) -> None:
    """A provider that is gone must not empty the budgets of who has less patience than a connection."""
    site = launch(bundle.document(purpose("plain", remote("gone", unanswering))))
    late = site.caller.ask(headers=headers_of(deadline_ms=300), stream=stream)
    checks.refused(site.caller, late, Governed.DEADLINE_EXPIRED, detail="timeout")

    def connecting() -> bool:
        begun = len(site.folder.rows("SELECT 1 FROM leaf WHERE kind = 'intent'"))
        time.sleep(0.2)
        return begun == 2

    left = site.caller.leave(connecting, stream=stream)
    for request_id, ended in ((late.headers["x-terraflow-request-id"], "timeout"), (left, "broken_off")):
        outcome = site.caller.evidence(request_id)["outcome"]
        [attempt] = outcome["attempts"]
        assert (attempt["failure"], attempt.get("cost_micro_usd", 0), attempt.get("estimated", False)) == (
            ended,
            0,
            False,
        )
    assert site.folder.money() == (0, 0)
