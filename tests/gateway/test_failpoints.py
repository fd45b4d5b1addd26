"""A failpoint at every call of the decision path: whatever it does instead of its work, no provider is called.

Every name that a step calls before the provider is replaced in turn, by each kind of fault. A few calls may answer
"nothing" and mean it (no cached answer, no rate to wait for); those answers are in `MEANT`, and only those.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from terraflow.gateway import attempts, calling, recording
from terraflow.gateway.http import arrived, service
from terraflow.gateway.stages import (
    admit,
    answer_from_cache,
    call_provider,
    check_bundle,
    claim_key,
    classify,
    limit_rate,
    plan_routes,
    record_intent,
    resolve_workload,
)
from terraflow.gateway.stages.authenticate import Keys
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import Inside, plane_inside
from tests.harness.wire import MemoryWire


def _raise() -> Any:
    raise RuntimeError("a fault of the test")


def _time_out() -> Any:
    raise TimeoutError


KINDS: dict[str, Callable[[], Any]] = {
    "exception": _raise,
    "timeout": _time_out,
    "none": lambda: None,
    "nan": lambda: float("nan"),
    "wrong type": object,
    "empty": lambda: (),
}


class Point(NamedTuple):
    """A name that is called: an attribute of a module, or of a part of the running plane."""

    of: str
    name: str


MODULES = {
    "service": service,
    "keys": Keys,
    "arrived": arrived,
    "wire": MemoryWire,
    "check_bundle": check_bundle,
    "resolve_workload": resolve_workload,
    "claim_key": claim_key,
    "limit_rate": limit_rate,
    "admit": admit,
    "classify": classify,
    "plan_routes": plan_routes,
    "answer_from_cache": answer_from_cache,
    "record_intent": record_intent,
    "call_provider": call_provider,
    "attempts": attempts,
    "calling": calling,
    "recording": recording,
}

POINTS = [
    Point("service", "parse_head"),
    Point("keys", "authenticate"),
    Point("arrived", "parse_declared"),
    Point("wire", "read_body"),
    Point("plane.store", "find_key"),
    Point("plane.clock", "monotonic"),
    Point("plane.clock", "now"),
    Point("plane.bundles", "active"),
    Point("resolve_workload", "resolve"),
    Point("plane.store", "claim"),
    Point("claim_key", "_digest"),
    Point("plane.rate", "take"),
    Point("plane.admission", "enter"),
    Point("classify", "collect"),
    Point("classify", "class_of"),
    Point("classify", "_defaults"),
    Point("plane.scanner", "steps"),
    Point("plan_routes", "decide_routes"),
    Point("plan_routes", "worst_case_of"),
    Point("plan_routes", "RequestFacts"),
    Point("plan_routes", "_conditions"),
    Point("plan_routes", "_condition"),
    Point("plane.providers", "ready"),
    Point("plane.providers", "inside_boundary"),
    Point("plane.providers", "under_pressure"),
    Point("plane.health", "healthy"),
    Point("plane.health", "recent_faults"),
    Point("plane.capacity", "free"),
    Point("answer_from_cache", "_key"),
    Point("plane.store", "find_answer"),
    Point("record_intent", "take_route"),
    Point("record_intent", "reservation_for"),
    Point("record_intent", "intent_entry"),
    Point("recording", "_request"),
    Point("attempts", "budget_lines"),
    Point("plane.store", "begin"),
    Point("call_provider", "open_trial"),
    Point("calling", "call_of"),
    Point("plane.capacity", "try_take"),
]

MEANT = {
    (Point("plane.rate", "take"), "none"),
    (Point("plane.store", "find_answer"), "none"),
    (Point("plane.capacity", "free"), "none"),
}
"""Answers of "nothing" that are an answer: the request goes on, and rightly."""

BODY = {"model": "w", "messages": [{"role": "user", "content": "hello"}]}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def headers() -> dict[str, str]:
    """A key of its own for each request, so that none replays another."""
    return {"idempotency-key": secrets.token_hex(8)}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def inside(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    fleet = {"replicas": [{"id": "r", "endpoint": "http://127.0.0.1:9/v1"}]}
    last = sim("f", provider="fleet", dialect="self_hosted", fleet=fleet)
    terms = {"requests_per_minute": 100_000, "response_cache": {"ttl_s": 60}, "egress": "burst"}
    made = purpose("w", sim("m"), sim("n"), last, **terms)
    folder = tmp_path_factory.mktemp("failpoints") / "data"
    async with plane_inside(folder, document(made)) as plane:
        yield plane


def owner_of(inside: Inside, point: Point) -> Any:
    """Where the name is looked up when it is called."""
    if point.of in MODULES:
        return MODULES[point.of]
    return type(getattr(inside.parts.plane, point.of.removeprefix("plane.")))


def nothing_is_held(inside: Inside) -> bool:
    """Whether the request has let go of everything."""
    plane = inside.parts.plane
    return (len(plane.running), plane.admission.running, plane.capacity._taken) == (0, 0, {})


@contextmanager
def fault(inside: Inside, point: Point, kind: str) -> Iterator[None]:
    """The name does something else, until the block ends."""
    owner, make = owner_of(inside, point), KINDS[kind]
    real = getattr(owner, point.name)

    async def later(*_: Any, **__: Any) -> Any:
        return make()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, point.name, later if inspect.iscoroutinefunction(real) else lambda *_, **__: make())
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.of}.{point.name}")
async def test_a_fault_before_the_call_makes_none(inside: Inside, point: Point, kind: str) -> None:
    calls = inside.upstream_calls
    body = BODY | {"user": secrets.token_hex(8)}
    with fault(inside, point, kind):
        async with asyncio.timeout(20):
            heard = await inside.chat(body, **headers())
    assert nothing_is_held(inside)
    if (point, kind) in MEANT:
        assert (heard.status, inside.upstream_calls) == (200, calls + 1), heard
        return
    assert inside.upstream_calls == calls, heard
    assert heard.status >= 400
    assert "fault of the test" not in str(heard.body)


async def test_without_a_fault_it_is_called_and_every_point_is_on_the_way(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: set[Point] = set()
    for point in POINTS:
        owner = owner_of(inside, point)
        real = getattr(owner, point.name)

        def watched(*given: Any, _real: Any = real, _point: Point = point, **named: Any) -> Any:
            passed.add(_point)
            return _real(*given, **named)

        monkeypatch.setattr(owner, point.name, watched)
    calls = inside.upstream_calls
    heard = await inside.chat(BODY | {"user": secrets.token_hex(8)}, **headers())
    assert (heard.status, inside.upstream_calls) == (200, calls + 1)
    assert passed == set(POINTS)
