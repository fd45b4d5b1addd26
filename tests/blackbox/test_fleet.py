"""A fleet behind a plane, all of it in processes of its own: what is recorded, and what is survived."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from terraflow.hints.deciding.assigned import LINGER_S
from terraflow.hints.plane.breaker import FAILURES_MAX
from tests.blackbox.conftest import Launch, Site
from tests.harness.bundle import document, purpose, sim
from tests.harness.caller import Caller, content_of
from tests.harness.engines import Beside, again, engines, fleet, hint_service
from tests.harness.fleet_load import LONG, Load, placements
from tests.harness.ports import kept_port


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Beside]]:
    with engines(tmp_path) as started:
        yield started


def absent() -> str:
    """An address at which nobody listens."""
    return f"127.0.0.1:{kept_port()}"


def served(launch: Launch, members: list[Beside], hints: str, **settings: Any) -> Site:
    return launch(document(purpose("chat", fleet("m", members))), hints=hints, **settings)


def ask(caller: Caller, text: str) -> dict[str, Any]:
    """A request that must be answered; where it went, in the end."""
    response = caller.ask("chat", text)
    assert response.status_code == 200, response.text
    return placements(caller, response.headers["x-terraflow-request-id"])[-1]


def test_the_record_names_the_replica_and_the_hint_and_what_the_engine_found(
    launch: Launch, three: list[Beside]
) -> None:
    caller = served(launch, three, "inside").caller
    first = caller.ask("chat", LONG)
    second = caller.ask("chat", LONG)
    found = [caller.evidence(one.headers["x-terraflow-request-id"])["outcome"]["attempts"] for one in (first, second)]
    [[before], [after]] = found
    assert before["placement"]["hint"] != "PREFIX_MATCH"
    assert after["placement"]["hint"] == "PREFIX_MATCH"
    assert after["placement"]["replica"] == after["placement"]["ranked"] == before["placement"]["replica"]
    assert after["placement"]["matched_tokens"] >= 512
    assert after["usage"]["cached"] >= 512
    assert "cached" not in before["usage"]


def test_inside_what_the_engines_report_is_known_and_what_they_forget_is_not(
    launch: Launch, three: list[Beside]
) -> None:
    members = fleet("m", three, fed=True, tokenizer="bytes", scheme="sim")
    caller = launch(document(purpose("chat", members)), hints="inside", hint_deadline_ms=200).caller
    text = "What the engines know of. " * 40
    first = ask(caller, text)
    time.sleep(LINGER_S + 1)
    response = caller.ask("chat", text)
    [attempt] = caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]["attempts"]
    assert attempt["placement"]["hint"] == "PREFIX_MATCH"
    assert attempt["placement"]["replica"] == first["replica"]
    assert attempt["placement"]["matched_tokens"] == attempt["usage"]["cached"] > 900
    holder = three[int(first["replica"][-1])]
    assert httpx2.post(holder.said["base_url"].removesuffix("/v1") + "/reset_prefix_cache").status_code == 200
    time.sleep(LINGER_S + 1)
    assert ask(caller, text)["hint"] != "PREFIX_MATCH"


def test_a_stream_is_placed_as_any_other(launch: Launch, three: list[Beside]) -> None:
    caller = served(launch, three, "inside").caller
    placed = ask(caller, LONG)
    with caller.stream("chat", LONG) as streamed:
        assert content_of(streamed.rest())
    assert placements(caller, streamed.request_id)[0]["replica"] == placed["replica"]


def test_without_hints_a_prompt_keeps_its_replica_and_no_hint_is_recorded(launch: Launch, three: list[Beside]) -> None:
    caller = served(launch, three, "off").caller
    found = [ask(caller, LONG) for _ in range(4)]
    assert len({one["replica"] for one in found}) == 1
    assert all("hint" not in one for one in found)


def test_a_killed_engine_fails_no_request_and_is_used_again_when_it_is_back(
    launch: Launch, three: list[Beside], tmp_path: Path
) -> None:
    caller = served(launch, three, "inside").caller
    with Load(caller) as load:
        load.run(30)
        three[0].kill()
        load.run(60)
        three[1].kill()
        load.run(60)
        with again(tmp_path, three[0]):
            load.run(60)
            back = time.monotonic() + 20
            while ask(caller, f"{time.monotonic()} {LONG}")["replica"] != "engine-0":
                assert time.monotonic() < back
    assert load.refused == []
    used = Counter(place["replica"] for one in load.answered for place in placements(caller, one))
    assert used["engine-2"] > 0


@pytest.mark.parametrize("hints", ["absent", "deaf"])
def test_with_the_hint_service_absent_or_deaf_no_request_fails_and_none_waits(
    launch: Launch, three: list[Beside], hints: str
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = absent() if hints == "absent" else f"127.0.0.1:{deaf.getsockname()[1]}"
        caller = served(launch, three, address).caller
        with Load(caller) as load:
            load.run(40)
            three[2].kill()
            load.run(60)
    assert load.refused == []
    codes = Counter(place["hint"] for one in load.answered for place in placements(caller, one))
    # The last two are of what the plane itself has just sent.
    assert set(codes) <= {"NO_HINT", "TIMEOUT", "PREFIX_MATCH", "AFFINITY_HINT"}
    assert codes["TIMEOUT"] <= 10


def test_a_service_elsewhere_hints_and_learns_what_was_sent(
    launch: Launch, three: list[Beside], tmp_path: Path
) -> None:
    with hint_service(tmp_path) as service:
        caller = served(launch, three, service.said["grpc"], hint_deadline_ms=2_000).caller
        first = ask(caller, LONG)
        # Longer than the plane itself remembers what it sent.
        time.sleep(LINGER_S + 0.5)
        second = ask(caller, LONG)
        assert second["hint"] == "PREFIX_MATCH"
        assert second["replica"] == second["ranked"] == first["replica"]


def test_killing_the_service_and_an_engine_fails_no_request(
    launch: Launch, three: list[Beside], tmp_path: Path
) -> None:
    with hint_service(tmp_path) as service:
        caller = served(launch, three, service.said["grpc"]).caller
        with Load(caller) as load:
            load.run(40)
            service.kill()
            load.run(40)
            with hint_service(tmp_path, int(service.said["grpc"].rpartition(":")[2])) as second:
                load.run(40)
                second.kill()
                three[0].kill()
                load.run(60)
    assert load.refused == []


def test_a_service_that_hangs_costs_a_few_deadlines_and_fails_no_request(
    launch: Launch, three: list[Beside], tmp_path: Path
) -> None:
    deadline_s = 0.5
    with hint_service(tmp_path) as service:
        caller = served(launch, three, service.said["grpc"], hint_deadline_ms=int(deadline_s * 1_000)).caller
        for at in range(5):
            ask(caller, f"{at} {LONG}")
        service.pause()
        took = []
        for at in range(30):
            began = time.monotonic()
            ask(caller, f"{at} again {LONG}")
            took.append(time.monotonic() - began)
        service.go_on()
        waited = [one for one in took if one >= deadline_s]
        # Had nobody given the service up, it would be all of them; some are slow for reasons of a busy machine.
        assert FAILURES_MAX <= len(waited) <= FAILURES_MAX + 5
        ends = time.monotonic() + 20
        while ask(caller, f"{time.monotonic()} {LONG}")["hint"] == "NO_HINT" and time.monotonic() < ends:
            response = caller.ask("chat", LONG)
            if placements(caller, response.headers["x-terraflow-request-id"])[0]["hint"] == "PREFIX_MATCH":
                break
        assert time.monotonic() < ends


def test_when_all_engines_are_dead_the_next_route_answers(launch: Launch, three: list[Beside]) -> None:
    site = launch(document(purpose("chat", fleet("m", three), sim("spare"))), hints="inside")
    for engine in three:
        engine.kill()
    response = site.caller.ask("chat", LONG)
    assert response.status_code == 200
    outcome = site.caller.evidence(response.headers["x-terraflow-request-id"])["outcome"]
    assert outcome["capability"] == "spare"
    tried = [attempt["placement"]["replica"] for attempt in outcome["attempts"] if attempt["capability"] == "m"]
    assert sorted(tried)[:3] == sorted(set(tried))
