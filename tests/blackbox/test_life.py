"""A plane's end and its beginning: it drains, it is killed, it starts again, and no record and no money is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth
from tests.harness import bundle
from tests.harness.bundle import limit, purpose, remote, sim
from tests.harness.caller import until
from tests.harness.checks import Checks
from tests.harness.plane import NotServing, Plane
from tests.harness.upstreams import COST, DONE, END, USED, Gate, Upstreams, answer, flow, held, text
from tests.providers.vendor import Vendor


class Held:
    """A plane whose model answers when the gate is open."""

    def __init__(self, launch: Launch, upstreams: Upstreams, **settings: int) -> None:
        self.gate = Gate()
        self.vendor: Vendor = upstreams.open(held(self.gate, answer()))
        self.site: Site = launch(bundle.document(purpose("plain", remote("engine", self.vendor.port))), **settings)
        self.caller, self.plane = self.site.caller, self.site.plane


def _recorded(held: Held) -> str:
    """The id of the only request whose intent is in the log."""
    [(request_id,)] = held.site.folder.rows("SELECT DISTINCT request_id FROM leaf")
    return str(request_id)


@every_mouth
def test_a_running_request_is_finished_before_the_end(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    waiting = Held(launch, upstreams)
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(waiting.caller.ask)
        until(lambda: waiting.vendor.requests)
        ended = threads.submit(waiting.plane.stop)
        until(lambda: _refuses(waiting.plane))
        assert not running.done() and not ended.done()
        waiting.gate.open()
        response = running.result()
        assert ended.result() == 0
    waiting.plane.start()
    checks.answered(waiting.caller, response, capability="engine", cost=COST)


def _refuses(plane: Plane) -> bool:
    """Whether no new connection is taken."""
    try:
        return httpx2.get(plane.base_url.replace("/v1", "/readyz"), timeout=2).status_code == 503
    except httpx2.TransportError:
        return True


def test_a_running_stream_is_finished_before_the_end(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    waiting = Held(launch, upstreams)
    waiting.vendor.replies[:] = [flow(text("Certain"), waiting.gate, text("ly."), END, USED, DONE)]
    with ThreadPoolExecutor(1) as threads, waiting.caller.stream("plain") as streamed:
        events = streamed.events()
        next(events)
        ended = threads.submit(waiting.plane.stop)
        until(lambda: _refuses(waiting.plane))
        waiting.gate.open()
        assert list(events)[-1] == "[DONE]"
        assert ended.result() == 0
    waiting.plane.start()
    checks.outcome(waiting.caller, streamed.request_id, Governed.PERMITTED, cost=COST)


@every_mouth
def test_what_does_not_finish_in_time_is_recorded(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    waiting = Held(launch, upstreams, drain_s=1)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(waiting.caller.ask)
        until(lambda: waiting.vendor.requests)
        waiting.plane.stop()
        assert running.exception() is not None or running.result().status_code == 500
    assert waiting.site.folder.rows("SELECT * FROM open_request") == []
    waiting.plane.start()
    outcome = checks.outcome(waiting.caller, _recorded(waiting), Governed.INTERNAL_ERROR)
    decision = waiting.caller.evidence(_recorded(waiting))["decision"]
    assert outcome["cost_micro_usd"] == decision["reserved_micro_usd"]


@every_mouth
def test_whom_the_end_cuts_off_is_told_so(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    waiting = Held(launch, upstreams, drain_s=3)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(waiting.caller.ask)
        until(lambda: waiting.vendor.requests)
        waiting.plane.stop()
        response = running.result()
    waiting.plane.start()
    reserved = waiting.caller.evidence(_recorded(waiting))["decision"]["reserved_micro_usd"]
    checks.refused(waiting.caller, response, Governed.INTERNAL_ERROR, detail="plane_stopped", cost=reserved)


def test_a_stream_that_the_end_cuts_off_ends_in_an_error_event(
    launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    waiting = Held(launch, upstreams, drain_s=3)
    waiting.vendor.replies[:] = [flow(text("Certain"), waiting.gate, text("ly."), END, USED, DONE)]
    with ThreadPoolExecutor(1) as threads, waiting.caller.stream("plain") as streamed:
        events = streamed.events()
        next(events)
        ended = threads.submit(waiting.plane.stop)
        rest = list(events)
        assert ended.result() == 0
    waiting.plane.start()
    checks.broken(waiting.caller, streamed, rest, Governed.INTERNAL_ERROR, "plane_stopped")


@pytest.mark.parametrize("stream", [False, True])
def test_a_crash_during_a_call_posts_its_worst_case(
    stream: bool, launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    waiting = Held(launch, upstreams)
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(waiting.caller.ask, stream=stream)
        until(lambda: waiting.vendor.requests)
        reserved, posted = waiting.site.folder.money()
        assert reserved > 0 and posted == 0
        waiting.plane.kill()
        assert isinstance(lost.exception(), httpx2.TransportError)
    waiting.plane.start()
    outcome = checks.outcome(
        waiting.caller, _recorded(waiting), Governed.INTERNAL_ERROR, cost=reserved, detail="recovered"
    )
    assert outcome["recovered"] is True
    assert waiting.site.folder.money() == (0, reserved)


def test_what_was_acknowledged_survives_a_crash(launch: Launch, checks: Checks) -> None:
    rows = [limit("workload", "plain", "hour", "1")]
    site = launch(bundle.document(purpose("plain", sim("one")), budgets=rows))
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda n: site.caller.ask(text=f"request {n}"), range(100)))
    site.plane.kill()
    site.plane.start()
    for response in responses:
        checks.answered(site.caller, response, capability="one")


def test_a_budget_is_not_given_back_by_a_restart(launch: Launch, checks: Checks) -> None:
    rows = [limit("tenant", "acme", "month", "0.0003")]
    site = launch(bundle.document(purpose("plain", sim("one")), budgets=rows))
    checks.answered(site.caller, site.caller.ask(), capability="one")
    for _ in range(2):
        checks.refused(site.caller, site.caller.ask(), Governed.BUDGET_EXHAUSTED, detail="tenant_month")
        site.plane.kill()
        site.plane.start()


def test_refusals_that_were_only_noted_are_there_after_the_end(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"), requests_per_minute=1)))
    responses = [site.caller.ask() for _ in range(20)][1:]
    site.plane.restart()
    for response in responses:
        checks.refused(site.caller, response, Governed.RATE_LIMITED, detail="workload", retry_after=True)


def test_one_plane_a_folder(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"))))
    with pytest.raises(NotServing) as second, Plane(site.folder):
        raise AssertionError("two planes run on one folder")
    assert "another plane" in str(second.value)
    checks.answered(site.caller, site.caller.ask(), capability="one")
