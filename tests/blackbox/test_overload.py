"""A plane with too much to do, over HTTP: who is given up, what is said, and that what ended holds nothing."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, remote, sim
from tests.harness.caller import headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import COST, Gate, Upstreams, answer, held
from tests.providers.vendor import says, silence


def ask_later(threads: ThreadPoolExecutor, site: Site, workload: str) -> Future[Any]:
    """Send it, and give it time to stand in the queue."""
    asked = threads.submit(site.caller.ask, workload)
    time.sleep(0.2)
    return asked


def test_a_full_tenant_gives_up_its_lowest_priority(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()))
    engine = remote("engine", vendor.port)
    workloads = (purpose(f"p{priority}", engine, priority=priority) for priority in range(4))
    site = launch(bundle.document(*workloads), running_max=1, tenant_max=3)
    with ThreadPoolExecutor(8) as threads:
        running = threads.submit(site.caller.ask, "p1")
        until(lambda: vendor.requests)
        batch, work = ask_later(threads, site, "p3"), ask_later(threads, site, "p2")
        refused = site.caller.ask("p3")
        urgent = ask_later(threads, site, "p0")
        for response in (refused, batch.result(5)):
            checks.refused(site.caller, response, Governed.TENANT_QUEUE_LIMIT, retry_after=True)
        assert not work.done() and len(vendor.requests) == 1
        gate.open()
        for response in (running.result(), urgent.result(), work.result()):
            checks.answered(site.caller, response, capability="engine", cost=COST)


def test_who_could_not_be_served_in_time_is_told_so_at_once(launch: Launch, checks: Checks) -> None:
    """A second each, one at a time, two ahead: the third would have its place in two seconds or more."""
    site = launch(bundle.document(purpose("plain", sim("one", {"latency_ms": 1_000}))), running_max=1)
    checks.answered(site.caller, site.caller.ask(), capability="one")
    with ThreadPoolExecutor(2) as threads:
        waiting = [ask_later(threads, site, "plain") for _ in range(2)]
        begun = time.monotonic()
        shed = site.caller.ask(headers=headers_of(deadline_ms=1_200))
        assert time.monotonic() - begun < 1, "before its deadline"
        checks.refused(site.caller, shed, Governed.QUEUE_SHED, retry_after=True)
        assert int(shed.headers["retry-after"]) in (2, 3)
        for asked in waiting:
            checks.answered(site.caller, asked.result(), capability="one")


def test_a_call_that_ended_holds_nothing_however_it_ended(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    """One place and one slot: each of these would keep the next request out for ever."""
    broken = upstreams.open(held(_opened(), answer(usage="nonsense")))
    document = bundle.document(
        purpose("fails", sim("failing", {"fail": "server_error"}, in_flight_max=1)),
        purpose("breaks", remote("broken", broken.port, in_flight_max=1)),
        purpose("late", sim("slow", {"latency_ms": 400}, in_flight_max=1)),
        purpose("refused", sim("unfit", in_flight_max=1, enabled=False)),
    )
    site = launch(document, running_max=1, health_faults_max=1_000)
    for _ in range(3):
        assert site.caller.ask("fails").status_code == 503
        site.caller.ask("breaks")
        assert site.caller.ask("refused").status_code == 403
        assert site.caller.ask("late", headers=headers_of(deadline_ms=100)).status_code == 504
    checks.answered(site.caller, site.caller.ask("late"), capability="slow")


def test_what_waited_for_its_place_says_nothing_of_a_model_that_had_the_rest_of_its_time(
    launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    """One place, and a fault is enough for a rest: the second request's call has a third of its time, the third's all
    of it."""
    gate = Gate()
    vendor = upstreams.open(held(gate, answer()), silence, answer(), silence)
    engine = remote("engine", vendor.port)
    document = bundle.document(purpose("plain", engine, deadline_ms=1_500), purpose("patient", engine))
    site = launch(document, running_max=1, health_faults_max=1)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(site.caller.ask, "patient")
        until(lambda: vendor.requests)
        waiting = threads.submit(site.caller.ask, "plain")
        time.sleep(1.0)
        gate.open()
        checks.answered(site.caller, first.result(), capability="engine", cost=COST)
        late = waiting.result()
    _timed_out(site, late, checks)
    checks.answered(site.caller, site.caller.ask("plain"), capability="engine", cost=COST)
    _timed_out(site, site.caller.ask("plain"), checks)
    checks.refused(site.caller, site.caller.ask("plain"), Governed.TIER_NOT_AVAILABLE, retry_after=True)


def _timed_out(site: Site, response: httpx2.Response, checks: Checks) -> None:
    reserved = site.caller.evidence(response.headers["x-terraflow-request-id"])["decision"]["reserved_micro_usd"]
    checks.refused(site.caller, response, Governed.DEADLINE_EXPIRED, detail="timeout", cost=reserved)


def test_a_vendor_that_says_when_is_not_asked_before_by_anybody(
    launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    vendor = upstreams.open(says(429, {"error": {"message": "slow down"}}, "Retry-After: 3"), answer())
    engine = remote("engine", vendor.port, prices={"input": 1, "output": 1})
    site = launch(bundle.document(purpose("plain", engine, sim("spare"))))
    first = site.caller.ask()
    checks.answered(site.caller, first, Governed.PROVIDER_ERROR_RECOVERED, capability="spare")
    said = time.monotonic()
    for _ in range(5):
        checks.answered(site.caller, site.caller.ask(), capability="spare")
    assert len(vendor.requests) == 1
    pinned = site.caller.ask(model="engine")
    checks.refused(site.caller, pinned, Governed.PROVIDER_UNHEALTHY, capability="engine", retry_after=True)
    until(lambda: site.caller.ask().headers["x-terraflow-capability"] == "engine")
    assert time.monotonic() - said > 2


def _opened() -> Gate:
    gate = Gate()
    gate.open()
    return gate
