"""A slot and a probe are had by whoever took them, in the instant in which they were seen to be free."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from terraflow.core.reasons import Governed
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import plane_inside

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
            health.failed("m", clock.monotonic() - 100, None)
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
        health.failed("m", clock.monotonic(), None)
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
    slow = purpose("w", sim("m", {"latency_ms": 300}), deadline_ms=30)
    async with plane_inside(tmp_path / "data", document(slow)) as inside:
        await inside.chat(BODY)
        assert inside.parts.plane.health.recent_faults("m") == 1
