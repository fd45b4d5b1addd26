"""`DELETE /v1/requests/{id}`: an application's request ends with CANCELLED, wherever it waits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import pytest

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.harness import bundle
from tests.harness.bundle import purpose, remote, sim
from tests.harness.caller import CANARY, headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import COST, DONE, END, USED, Gate, Upstreams, answer, flow, held, text
from tests.providers.vendor import Reply, Vendor


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open()


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    plain = purpose("plain", remote("engine", vendor.port, in_flight_max=1))
    return launch_shared(bundle.document(plain, purpose("theirs", sim("two"), tenant="umbra")))


def _open(site: Site) -> set[str]:
    """The ids of the requests whose intent is recorded and whose outcome is not."""
    return {request_id for (request_id,) in site.folder.rows("SELECT request_id FROM open_request")}


@contextmanager
def _under_way(
    site: Site, vendor: Vendor, reply: Reply, headers: dict[str, str] | None = None
) -> Iterator[tuple[str, Future[httpx2.Response]]]:
    """The id of a request that the vendor has been asked for, and the response that it will get."""
    vendor.replies[:] = [reply]
    calls = len(vendor.requests)
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(site.caller.ask, "plain", headers=headers)
        until(lambda: len(vendor.requests) > calls)
        [request_id] = _open(site)
        yield request_id, asking


@every_mouth
def test_a_running_request_is_cancelled(site: Site, vendor: Vendor, checks: Checks) -> None:
    left = len(vendor.closed_at)
    with _under_way(site, vendor, held(Gate(), answer())) as (request_id, asking):
        done = site.caller.cancel(request_id)
        response = asking.result()
    until(lambda: len(vendor.closed_at) > left)
    outcome = checks.outcome(site.caller, request_id, Governed.CANCELLED, detail="by_id")
    cost = outcome["cost_micro_usd"]
    assert cost > 0, "a call that may have been answered is posted at its worst case"
    checks.refused(site.caller, response, Governed.CANCELLED, detail="by_id", cost=cost)
    assert done.status_code == 200
    assert done.json() == {
        "object": "request",
        "id": request_id,
        "cancelled": True,
        "reason_code": "CANCELLED",
        "cost_usd": response.headers["x-terraflow-cost-usd"],
    }
    assert done.headers["x-terraflow-request-id"] != request_id
    assert "x-terraflow-reason" not in done.headers
    checks.ungoverned(site.caller.cancel(request_id), ModelApi.REQUEST_NOT_FOUND)


@every_vendor_mouth
def test_a_stream_is_cancelled_and_ends_in_an_error(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Certain"), 60.0, text("ly."), END, USED, DONE)]
    left = len(vendor.closed_at)
    with site.caller.stream("plain") as streamed:
        events = streamed.events()
        next(events)
        done = site.caller.cancel(streamed.request_id)
        rest = list(events)
    assert (done.status_code, done.json()["cancelled"]) == (200, True)
    until(lambda: len(vendor.closed_at) > left)
    outcome = checks.broken(site.caller, streamed, rest, Governed.CANCELLED, "by_id")
    [attempt] = outcome["attempts"]
    assert (attempt["failure"], attempt["estimated"]) == ("broken_off", True)
    assert attempt["usage"]["output"] == 2, "seven characters, four a token"


@every_mouth
def test_a_request_that_waits_for_a_slot_is_cancelled(site: Site, vendor: Vendor, checks: Checks) -> None:
    gate = Gate()
    vendor.replies[:] = [held(gate, answer())]
    calls = len(vendor.requests)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(site.caller.ask, "plain")
        until(lambda: len(vendor.requests) > calls)
        inside = _open(site)
        second = threads.submit(site.caller.ask, "plain")
        until(lambda: _open(site) - inside)
        [waits] = _open(site) - inside
        assert site.caller.cancel(waits).json()["cost_usd"] == "0"
        checks.refused(site.caller, second.result(), Governed.CANCELLED, detail="by_id")
        gate.open()
        checks.answered(site.caller, first.result(), capability="engine", cost=COST)
    assert len(vendor.requests) == calls + 1


@every_mouth
def test_a_keyed_request_that_was_cancelled_frees_its_key(site: Site, vendor: Vendor, checks: Checks) -> None:
    with _under_way(site, vendor, held(Gate(), answer()), headers_of(key="once")) as (request_id, asking):
        assert site.caller.cancel(request_id).json()["cancelled"] is True
        assert asking.result().status_code == 409
    vendor.replies[:] = [answer()]
    again = site.caller.ask("plain", headers=headers_of(key="once"))
    checks.answered(site.caller, again, capability="engine", cost=COST)


def test_nobody_else_cancels_a_request(site: Site, vendor: Vendor, checks: Checks) -> None:
    gate = Gate()
    with _under_way(site, vendor, held(gate, answer())) as (request_id, asking):
        for other in (site.folder.issue_key("umbra"), site.folder.issue_key("acme", "another")):
            refused = site.caller_with(other).cancel(request_id)
            checks.ungoverned(refused, ModelApi.REQUEST_NOT_FOUND)
        gate.open()
        checks.answered(site.caller, asking.result(), capability="engine", cost=COST)


@pytest.mark.parametrize("named", ["req_" + "0" * 32, CANARY, "req_0", "*"])
def test_a_request_that_is_not_there(named: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(site.caller.cancel(named), ModelApi.REQUEST_NOT_FOUND)


@pytest.mark.parametrize("named", ["", "req_0/more", "req_0/a/b"])
def test_no_other_path_cancels(named: str, site: Site, checks: Checks) -> None:
    checks.ungoverned(site.caller.cancel(named), ModelApi.NOT_FOUND)


def test_an_end_that_is_not_recorded_yet_is_told_as_one(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    vendor = upstreams.open()
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port))), faults=True)
    with _under_way(site, vendor, held(Gate(), answer())) as (request_id, asking):
        with site.plane.fault("finish"):
            done = site.caller.cancel(request_id)
            assert checks.raised(asking.result()) is Governed.EVIDENCE_UNAVAILABLE
        assert done.status_code == 202
        told = {"cancelled": None, "reason_code": None, "cost_usd": None}
        assert done.json() == {"object": "request", "id": request_id} | told
        until(lambda: not _open(site))
    checks.outcome(site.caller, request_id, Governed.EVIDENCE_UNAVAILABLE, detail="recorded_late")
