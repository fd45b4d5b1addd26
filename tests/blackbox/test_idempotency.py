"""Step 6: one idempotency key is one call of a model, whoever waits, leaves, or restarts meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth
from tests.harness import bundle
from tests.harness.bundle import purpose, remote, sim
from tests.harness.caller import content_of, headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import COST, DONE, END, USED, Gate, Upstreams, answer, flow, held, text
from tests.providers.vendor import Vendor

TOOL = {"type": "function", "function": {"name": "unlisted"}}


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    fails_once = [{"fail": "authentication"}, {}]
    return launch_shared(
        bundle.document(
            purpose("plain", engine),
            purpose("other", engine),
            purpose("cached", engine, response_cache={"ttl_s": 600}),
            purpose("theirs", engine, tenant="umbra"),
            purpose("needs-key", engine, require_idempotency=True),
            purpose("fails-once", sim("recovers", *fails_once)),
            purpose("twice", engine, requests_per_minute=2),
        ),
        health_faults_max=100,
    )


@every_mouth
def test_a_key_that_is_required(site: Site, checks: Checks) -> None:
    checks.refused(site.caller, site.caller.ask("needs-key"), Governed.IDEMPOTENCY_KEY_REQUIRED)
    given = site.caller.ask("needs-key", headers=headers_of(key="required"))
    checks.answered(site.caller, given, capability="engine", cost=COST)


@every_mouth
def test_the_same_request_again_is_replayed(site: Site, vendor: Vendor, checks: Checks) -> None:
    calls, headers = len(vendor.requests), headers_of(key="again")
    original = site.caller.ask(headers=headers)
    checks.answered(site.caller, original, capability="engine", cost=COST)
    for _ in range(2):
        checks.replayed(site.caller, site.caller.ask(headers=headers), original)
    checks.replayed(site.caller, site.caller.ask(headers=headers | headers_of(deadline_ms=5_000)), original)
    assert len(vendor.requests) == calls + 1


@every_mouth
def test_a_refusal_is_replayed_too(site: Site, checks: Checks) -> None:
    headers = headers_of(key="refused")
    original = site.caller.ask(headers=headers, tools=[TOOL])
    checks.refused(site.caller, original, Governed.TOOL_NOT_PERMITTED)
    response = site.caller.ask(headers=headers, tools=[TOOL])
    body = checks.replayed(site.caller, response, original)
    assert body["error"]["code"] == Governed.IDEMPOTENCY_REPLAY
    assert response.headers["x-should-retry"] == "false"


def test_a_streamed_answer_is_replayed_as_a_stream(launch: Launch, upstreams: Upstreams, checks: Checks) -> None:
    vendor = upstreams.open(flow(text("Certain"), text("ly."), END, USED, DONE))
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port))))
    headers = headers_of(key="streamed")
    with site.caller.stream("plain", headers=headers) as first:
        events = first.rest()
    assert content_of(events) == "Certainly."
    with site.caller.stream("plain", headers=headers) as second:
        again = second.rest()
    checks.replayed(site.caller, second.response, first.response)
    assert content_of(again) == "Certainly."
    assert again[-1] == events[-1] == "[DONE]"
    assert len(vendor.requests) == 1


@every_mouth
@pytest.mark.parametrize(
    ("workload", "more", "said"),
    [
        ("plain", {}, "Something else"),
        ("other", {}, "Hello"),
        ("plain", headers_of(data_class="public"), "Hello"),
        ("plain", headers_of(types="pii"), "Hello"),
    ],
    ids=["body", "workload", "class", "types"],
)
def test_the_same_key_for_another_request(
    workload: str, more: dict[str, str], said: str, site: Site, vendor: Vendor, checks: Checks
) -> None:
    key = headers_of(key=f"conflict {workload} {said} {len(more)} {list(more.values())}")
    assert site.caller.ask("plain", headers=key).status_code == 200
    calls = len(vendor.requests)
    response = site.caller.ask(workload, said, headers=key | more)
    checks.refused(site.caller, response, Governed.IDEMPOTENCY_CONFLICT)
    assert len(vendor.requests) == calls


def test_a_key_belongs_to_its_application(site: Site, checks: Checks) -> None:
    headers = headers_of(key="mine")
    assert site.caller.ask(headers=headers).status_code == 200
    theirs = site.caller_with(site.folder.issue_key("umbra"))
    checks.answered(theirs, theirs.ask("theirs", headers=headers), capability="engine", cost=COST)


def test_outcomes_that_invite_a_retry_free_the_key(site: Site, checks: Checks) -> None:
    headers = headers_of(key="retried")
    failed = site.caller.ask("fails-once", headers=headers)
    checks.refused(site.caller, failed, Governed.PROVIDER_ERROR_UNRECOVERED, detail="authentication")
    checks.answered(site.caller, site.caller.ask("fails-once", headers=headers), capability="recovers")
    for _ in range(2):
        assert site.caller.ask("twice").status_code == 200
    limited = site.caller.ask("twice", headers=headers_of(key="limited"))
    checks.refused(site.caller, limited, Governed.RATE_LIMITED, detail="workload", retry_after=True)
    again = site.caller.ask("twice", headers=headers_of(key="limited"))
    checks.refused(site.caller, again, Governed.RATE_LIMITED, detail="workload", retry_after=True)


@every_mouth
def test_an_erased_answer_is_not_called_for_again(site: Site, vendor: Vendor, checks: Checks) -> None:
    headers = headers_of(key="erased")
    original = site.caller.ask(headers=headers).headers["x-terraflow-request-id"]
    assert site.folder.erase(original) == 1
    calls = len(vendor.requests)
    facts = checks.refused(site.caller, site.caller.ask(headers=headers), Governed.IDEMPOTENCY_REPLAY_NO_CONTENT)
    assert facts["details"] == {"original_request_id": original, "original_reason_code": Governed.PERMITTED}
    assert len(vendor.requests) == calls


def test_erasing_an_answer_erases_what_its_cache_gave_to_keys(site: Site, vendor: Vendor, checks: Checks) -> None:
    original = site.caller.ask("cached").headers["x-terraflow-request-id"]
    headers = headers_of(key="of the cache")
    hit = site.caller.ask("cached", headers=headers)
    assert checks.raised(hit) is Governed.CACHE_HIT
    checks.replayed(site.caller, site.caller.ask("cached", headers=headers), hit)
    assert site.folder.erase(original) == 2
    calls = len(vendor.requests)
    facts = checks.refused(
        site.caller, site.caller.ask("cached", headers=headers), Governed.IDEMPOTENCY_REPLAY_NO_CONTENT
    )
    assert facts["details"]["original_reason_code"] == Governed.CACHE_HIT
    assert len(vendor.requests) == calls


def test_a_key_is_forgotten_after_its_time(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"))), key_keep_s=1)
    headers = headers_of(key="old")
    first = site.caller.ask(headers=headers)
    checks.replayed(site.caller, site.caller.ask(headers=headers), first)
    until(lambda: site.caller.ask(headers=headers).headers["x-terraflow-reason"] == Governed.PERMITTED)


class Held:
    """A plane whose model answers when the gate is open."""

    def __init__(self, launch: Launch, upstreams: Upstreams) -> None:
        self.gate = Gate()
        self.vendor = upstreams.open(held(self.gate, answer()))
        self.site = launch(bundle.document(purpose("plain", remote("engine", self.vendor.port))))
        self.caller = self.site.caller
        self.threads = ThreadPoolExecutor(8)


@pytest.fixture
def waiting(launch: Launch, upstreams: Upstreams) -> Held:
    return Held(launch, upstreams)


@every_mouth
def test_eight_at_once_make_one_call(waiting: Held, checks: Checks) -> None:
    headers = headers_of(key="at once")
    sent = [waiting.threads.submit(waiting.caller.ask, headers=headers) for _ in range(8)]
    until(lambda: waiting.vendor.requests)
    waiting.gate.open()
    responses = [one.result() for one in sent]
    originals = [one for one in responses if one.headers["x-terraflow-reason"] == Governed.PERMITTED]
    assert len(originals) == len(waiting.vendor.requests) == 1
    for response in responses:
        if response is not originals[0]:
            checks.replayed(waiting.caller, response, originals[0])


@every_mouth
def test_a_duplicate_waits_no_longer_than_its_own_deadline(waiting: Held, checks: Checks) -> None:
    headers = headers_of(key="slow")
    original = waiting.threads.submit(waiting.caller.ask, headers=headers)
    until(lambda: waiting.vendor.requests)
    late = waiting.caller.ask(headers=headers | headers_of(deadline_ms=50))
    checks.refused(waiting.caller, late, Governed.DEADLINE_EXPIRED, detail="waiting_for_original")
    waiting.gate.open()
    checks.answered(waiting.caller, original.result(), capability="engine", cost=COST)


def test_a_duplicate_that_leaves_ends_alone(waiting: Held, checks: Checks) -> None:
    headers = headers_of(key="impatient")
    original = waiting.threads.submit(waiting.caller.ask, headers=headers)
    until(lambda: waiting.vendor.requests)
    request_id = waiting.caller.leave_queue(headers)
    checks.outcome(waiting.caller, request_id, Governed.CANCELLED, cost=0, detail="caller_left")
    waiting.gate.open()
    checks.answered(waiting.caller, original.result(), capability="engine", cost=COST)
    checks.replayed(waiting.caller, waiting.caller.ask(headers=headers), original.result())


def test_a_keyed_call_runs_on_when_its_caller_leaves(waiting: Held, checks: Checks) -> None:
    headers = headers_of(key="left")

    def called() -> bool:
        if waiting.vendor.requests:
            waiting.threads.submit(waiting.gate.open)
        return bool(waiting.vendor.requests)

    request_id = waiting.caller.leave(called, headers)
    checks.outcome(waiting.caller, request_id, Governed.PERMITTED, cost=COST)
    again = waiting.caller.ask(headers=headers)
    assert checks.raised(again) is Governed.IDEMPOTENCY_REPLAY
    assert again.json()["terraflow"]["original_request_id"] == request_id
    assert again.json()["choices"][0]["message"]["content"] == "Certainly."
    assert len(waiting.vendor.requests) == 1


@every_mouth
def test_a_replay_after_a_restart(waiting: Held, checks: Checks) -> None:
    headers = headers_of(key="kept")
    waiting.gate.open()
    original = waiting.caller.ask(headers=headers)
    waiting.site.plane.restart()
    checks.replayed(waiting.caller, waiting.caller.ask(headers=headers), original)
    waiting.site.plane.kill()
    waiting.site.plane.start()
    checks.replayed(waiting.caller, waiting.caller.ask(headers=headers), original)
    assert len(waiting.vendor.requests) == 1


def test_a_crash_during_the_call_of_an_unpriced_model_leads_to_no_second_one(
    launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    gate, headers = Gate(), headers_of(key="crashed")
    vendor = upstreams.open(held(gate, answer()))
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port, prices=None))))
    with ThreadPoolExecutor(1) as threads:
        lost = threads.submit(site.caller.ask, headers=headers)
        until(lambda: vendor.requests)
        site.plane.kill()
        gate.open()
        assert lost.exception() is not None
    site.plane.start()
    checks.refused(site.caller, site.caller.ask(headers=headers), Governed.IDEMPOTENCY_REPLAY_NO_CONTENT)
    assert len(vendor.requests) == 1


def test_a_crash_during_the_call_never_leads_to_a_second_one(waiting: Held, checks: Checks) -> None:
    headers = headers_of(key="crashed")
    lost = waiting.threads.submit(waiting.caller.ask, headers=headers)
    until(lambda: waiting.vendor.requests)
    waiting.site.plane.kill()
    assert lost.exception() is not None
    waiting.site.plane.start()
    facts = checks.refused(waiting.caller, waiting.caller.ask(headers=headers), Governed.IDEMPOTENCY_REPLAY_NO_CONTENT)
    original = facts["details"]["original_request_id"]
    outcome = checks.outcome(waiting.caller, original, Governed.INTERNAL_ERROR, detail="recovered")
    assert outcome["recovered"] is True
    decision = waiting.caller.evidence(original)["decision"]
    assert outcome["cost_micro_usd"] == decision["reserved_micro_usd"]
    assert len(waiting.vendor.requests) == 1


def test_a_pin_on_a_capability_that_rests_frees_its_key(launch: Launch, checks: Checks) -> None:
    document = bundle.document(purpose("plain", sim("engine", {"fail": "authentication"}, {})))
    site = launch(document, health_faults_max=1, health_rest_s=1)
    assert site.caller.ask().status_code == 503
    headers = headers_of(key="pinned")
    refused = site.caller.ask(headers=headers, model="engine")
    checks.refused(site.caller, refused, Governed.PROVIDER_UNHEALTHY, capability="engine", retry_after=True)
    until(lambda: site.caller.ask(headers=headers, model="engine").status_code == 200)
    again = site.caller.ask(headers=headers, model="engine")
    assert again.headers["x-terraflow-reason"] == Governed.IDEMPOTENCY_REPLAY
