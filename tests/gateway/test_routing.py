"""A slot and a probe are had by whoever took them, in the instant in which they were seen to be free."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from terraflow.core.reasons import Governed
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import Inside, plane_inside

BODY = {"messages": [{"role": "user", "content": "hello"}]}
SLOW = {"latency_ms": 150}


async def test_who_finds_the_first_route_full_goes_to_the_next_at_once(tmp_path: Path) -> None:
    routes = purpose(
        "w", sim("first", SLOW, in_flight_max=1), sim("second", SLOW, prices={"input": 9_000_000, "output": 9_000_000})
    )
    async with plane_inside(tmp_path / "data", document(routes)) as inside:
        heard = await asyncio.gather(*(inside.chat(BODY) for _ in range(8)))
        assert Counter(each.headers["x-terraflow-capability"] for each in heard) == {"first": 1, "second": 7}
        again = await inside.chat(BODY)
        assert again.headers["x-terraflow-capability"] == "first"
        assert inside.parts.plane.capacity._taken == {}


async def test_a_full_route_is_no_reason_for_the_safe_path(tmp_path: Path) -> None:
    routes = purpose("w", sim("only", {"latency_ms": 20}, in_flight_max=1), sim("safe"), safe_path="safe")
    async with plane_inside(tmp_path / "data", document(routes)) as inside:
        heard = await asyncio.gather(*(inside.chat(BODY) for _ in range(4)))
        assert {each.headers["x-terraflow-capability"] for each in heard} == {"only"}


async def test_after_a_rest_one_call_is_the_probe(tmp_path: Path) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m", SLOW)))) as inside:
        health, clock = inside.parts.plane.health, inside.parts.plane.clock
        for _ in range(5):
            health.failed("m", clock.monotonic() - 100, clock.monotonic() - 100, None)
        heard = await asyncio.gather(*(inside.chat(BODY) for _ in range(8)))
        assert inside.upstream_calls == 1
        codes = Counter(each.headers["x-terraflow-reason"] for each in heard)
        assert codes == {Governed.PERMITTED: 1, Governed.TIER_NOT_AVAILABLE: 7}
        assert all("retry-after" in each.headers for each in heard if each.status == 503)
        assert (await inside.chat(BODY)).status == 200


async def test_what_was_never_sent_says_nothing_about_health(tmp_path: Path) -> None:
    unsupported = {"fail": "unsupported_field"}
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m", unsupported)))) as inside:
        health, clock = inside.parts.plane.health, inside.parts.plane.clock
        health.failed("m", clock.monotonic(), clock.monotonic(), None)
        assert (await inside.chat(BODY)).headers["x-terraflow-reason"] == Governed.PROVIDER_REJECTED_REQUEST
        assert health.recent_faults("m") == 1


async def test_a_deadline_of_the_callers_own_spoils_nobodys_capability(tmp_path: Path) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m", {"latency_ms": 300})))) as inside:
        health = inside.parts.plane.health
        for _ in range(6):
            heard = await inside.chat(BODY, **{"x-terraflow-deadline-ms": "30"})
            assert heard.headers["x-terraflow-reason"] == Governed.DEADLINE_EXPIRED
        assert health.recent_faults("m") == 0
        assert (await inside.chat(BODY)).status == 200


async def test_a_deadline_of_the_contract_does_blame_the_capability(tmp_path: Path) -> None:
    slow = purpose("w", sim("m", {"latency_ms": 1_000}), deadline_ms=400)
    async with plane_inside(tmp_path / "data", document(slow)) as inside:
        await inside.chat(BODY)
        assert inside.parts.plane.health.recent_faults("m") == 1


async def test_so_does_the_longest_time_that_the_plane_gives_where_the_contract_would_give_more(tmp_path: Path) -> None:
    slow = purpose("w", sim("m", {"latency_ms": 600}), deadline_ms=1_000)
    async with plane_inside(tmp_path / "data", document(slow), deadline_ms_max=400) as inside:
        heard = await inside.chat(BODY)
        assert heard.headers["x-terraflow-reason"] == Governed.DEADLINE_EXPIRED
        assert inside.parts.plane.health.recent_faults("m") == 1


@pytest.mark.parametrize(("choices", "faults"), [(1, 1), (2, 0)])
async def test_several_choices_that_an_engine_does_not_give_spoil_nobodys_capability(
    choices: int, faults: int, tmp_path: Path
) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m", {"fail": "malformed"})))) as inside:
        await inside.chat({**BODY, "n": choices})
        assert inside.upstream_calls == 1
        assert inside.parts.plane.health.recent_faults("m") == faults


@pytest.mark.parametrize(
    ("fail", "fewer"), [("rate_limited", True), ("overloaded", True), ("timeout", True), ("server_error", False)]
)
async def test_a_capability_that_is_given_too_much_is_called_less_at_once(
    fail: str, fewer: bool, tmp_path: Path
) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m", {"fail": fail})))) as inside:
        await inside.chat(BODY)
        slots = inside.parts.plane.capacity.slots("m", None)
        assert (slots.limit < slots.ceiling) is fewer


async def once(true: Callable[[], object]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def rests(inside: Inside, capability: str) -> None:
    """Five faults of others, now."""
    plane = inside.parts.plane
    for _ in range(5):
        plane.health.failed(capability, plane.clock.monotonic(), plane.clock.monotonic(), None)


async def test_a_fault_that_makes_a_capability_rest_is_not_retried_on_it(tmp_path: Path) -> None:
    fails = purpose("w", sim("m", {"fail": "server_error"}))
    async with plane_inside(tmp_path / "data", document(fails), health_faults_max=2) as inside:
        heard = await inside.chat(BODY)
        assert heard.headers["x-terraflow-reason"] == Governed.PROVIDER_ERROR_UNRECOVERED
        assert inside.upstream_calls == 2


async def test_a_retry_obeys_what_another_caller_was_told_meanwhile(tmp_path: Path) -> None:
    fails = purpose("w", sim("m", {"fail": "rate_limited", "retry_after_s": 1}, {}))
    async with plane_inside(tmp_path / "data", document(fails)) as inside:
        health, clock = inside.parts.plane.health, inside.parts.plane.clock
        asked = asyncio.create_task(inside.chat(BODY))
        await once(lambda: health.recent_faults("m"))
        health.failed("m", clock.monotonic(), clock.monotonic(), 30.0)
        assert (await asked).headers["x-terraflow-reason"] == Governed.PROVIDER_ERROR_UNRECOVERED
        assert inside.upstream_calls == 1
        assert inside.parts.plane.capacity._taken == {}


async def test_a_retry_after_that_the_request_met_itself_has_passed_when_it_is_retried(tmp_path: Path) -> None:
    again = purpose("w", sim("m", {"fail": "rate_limited", "retry_after_s": 1}, {}))
    async with plane_inside(tmp_path / "data", document(again)) as inside:
        assert (await inside.chat(BODY)).headers["x-terraflow-reason"] == Governed.PROVIDER_ERROR_RECOVERED


async def test_a_fallback_that_rests_by_now_is_not_called(tmp_path: Path) -> None:
    routes = purpose("w", sim("m", {"latency_ms": 200, "fail": "authentication"}), sim("next"))
    async with plane_inside(tmp_path / "data", document(routes)) as inside:
        asked = asyncio.create_task(inside.chat(BODY))
        await once(lambda: inside.upstream_calls)
        rests(inside, "next")
        assert (await asked).headers["x-terraflow-reason"] == Governed.PROVIDER_ERROR_UNRECOVERED
        assert inside.upstream_calls == 1


async def test_who_waited_for_a_slot_of_a_capability_that_rests_by_then_does_not_call_it(tmp_path: Path) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("w", sim("m", in_flight_max=1)))) as inside:
        capacity = inside.parts.plane.capacity
        assert capacity.try_take("m", 1)
        asked = asyncio.create_task(inside.chat(BODY))
        await once(lambda: capacity._waiting)
        rests(inside, "m")
        capacity.give_back("m")
        heard = await asked
        assert heard.headers["x-terraflow-reason"] == Governed.TIER_NOT_AVAILABLE
        assert 9 <= int(heard.headers["retry-after"]) <= 10
        assert inside.upstream_calls == 0
        assert capacity._taken == {}
        assert inside.folder.rows("SELECT * FROM reservation WHERE state = 'reserved'") == []


async def test_who_waited_in_vain_for_a_slot_goes_to_the_next_route(tmp_path: Path) -> None:
    routes = purpose("w", sim("m", in_flight_max=1), sim("next", in_flight_max=1))
    async with plane_inside(tmp_path / "data", document(routes)) as inside:
        capacity = inside.parts.plane.capacity
        assert capacity.try_take("m", 1) and capacity.try_take("next", 1)
        asked = asyncio.create_task(inside.chat(BODY))
        await once(lambda: capacity._waiting)
        capacity.give_back("next")
        rests(inside, "m")
        capacity.give_back("m")
        heard = await asked
        assert heard.headers["x-terraflow-reason"] == Governed.PERMITTED
        assert heard.headers["x-terraflow-capability"] == "next"
