"""A fleet's provider over real connections: which replica is called, what is recorded of it, and what its failure
says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from terraflow.app.runtime import SystemClock
from terraflow.contracts.capability import Capability, Dialect, ProviderKind
from terraflow.contracts.fleet import Fleet, Replica
from terraflow.core.reasons import Lookup
from terraflow.hints.plane.content import ContentPrefixes
from terraflow.ports.hints import Hint, Prefix, Ranked
from terraflow.ports.upstream import Call, Failure, Placement, Provider, ProviderFailure
from terraflow.providers.endpoint import Standing
from terraflow.providers.fleet import Advice
from terraflow.providers.open import open_provider
from tests.harness.ports import kept_port
from tests.providers.sample import call, capability, collect, reaching, text_of
from tests.providers.vendor import Vendor, hangs_up, says, silence, streams

LONG = [{"role": "user", "content": "The same beginning. " * 400}]


def answers(text: str, cached: int = 0) -> dict[str, object]:
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 2,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


class Board:
    """A `ReplicaHints` that answers what it is given, and keeps what it is told."""

    def __init__(self, answer: Callable[[], Hint] = lambda: Hint(reason=Lookup.NO_HINT)) -> None:
        self.answer = answer
        self.told: list[tuple[str, str, bool | None]] = []
        self.hashes: list[list[bytes]] = []
        self.pressures: dict[str, float] = {}

    async def hint(self, prefix: Prefix, timeout_s: float) -> Hint:
        assert timeout_s > 0
        return self.answer()

    def pressure(self, tenant: str, model: str) -> dict[str, float]:
        return self.pressures if (tenant, model) == ("fleet", "model-1") else {}

    def joined(self, tenant: str, model: str, scheme: str, replicas: Sequence[str]) -> None:
        return

    def sent(self, prefix: Prefix, replica: str, matched_tokens: int) -> None:
        self.told.append(("sent", replica, None))
        self.hashes.append([*prefix.hashes])

    def ended(self, prefix: Prefix, replica: str, held: bool) -> None:
        self.told.append(("ended", replica, held))

    def lost(self, prefix: Prefix, replica: str) -> None:
        self.told.append(("lost", replica, None))

    async def close(self) -> None:
        return


def fleet(ports: Sequence[int], **changes: object) -> Capability:
    replicas = tuple(Replica(id=f"r{at}", endpoint=f"http://127.0.0.1:{port}/v1") for at, port in enumerate(ports))
    one = capability(ProviderKind.FLEET, dialect=Dialect.SELF_HOSTED)
    return msgspec.structs.replace(one, fleet=Fleet(replicas=replicas, **changes))  # type: ignore[arg-type]


@asynccontextmanager
async def opened(asked: Capability, hints: Board | None = None) -> AsyncIterator[Provider]:
    prefixes = ContentPrefixes(tenant="fleet", model="model-1", adapter="")
    async with reaching() as outbound:
        advice = Advice(prefixes=prefixes, hints=hints, deadline_s=0.5)
        found = await open_provider(asked, None, outbound, SystemClock(), advice)
        assert found.standing is Standing.PERMITTED
        try:
            yield found.provider
        finally:
            await found.provider.close()


@asynccontextmanager
async def engines(*replies: object) -> AsyncIterator[list[Vendor]]:
    vendors = [await Vendor(reply).start() for reply in replies]  # type: ignore[arg-type]
    try:
        yield vendors
    finally:
        for vendor in vendors:
            await vendor.stop()


def recorded(asked: Call) -> tuple[Call, list[Placement]]:
    places: list[Placement] = []
    return msgspec.structs.replace(asked, placed=places.append), places


def ports(vendors: Sequence[Vendor]) -> list[int]:
    return [vendor.port for vendor in vendors]


async def test_while_a_replica_is_chosen_nothing_of_the_call_has_gone_out() -> None:
    said: list[bool] = []
    meanwhile: list[list[bool]] = []

    def hint() -> Hint:
        meanwhile.append([*said])
        return Hint(reason=Lookup.NO_HINT)

    async with engines(says(200, answers("yes"))) as vendors, opened(fleet(ports(vendors)), Board(hint)) as provider:
        asked = msgspec.structs.replace(call(messages=LONG), connecting=said.append)
        await provider.complete(asked)
    assert meanwhile == [[True]] and said[-1] is False


def ranks(*ranked: tuple[str, int], reason: Lookup = Lookup.PREFIX_MATCH) -> Callable[[], Hint]:
    return lambda: Hint(reason=reason, ranked=tuple(Ranked(replica, float(n), n) for replica, n in ranked))


@pytest.mark.parametrize("stream", [False, True])
async def test_the_hinted_replica_is_called_and_recorded(stream: bool) -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    reply = streams(event) if stream else says(200, answers("hi", 64))
    board = Board(ranks(("r2", 1_500), ("r0", 700)))
    async with engines(reply, reply, reply) as vendors, opened(fleet(ports(vendors)), board) as provider:
        asked, places = recorded(call(messages=LONG, stream=stream))
        if stream:
            assert text_of(await collect(provider, asked)) == "hi"
        else:
            assert (await provider.complete(asked)).usage.cached_input == 64
        assert [len(vendor.requests) for vendor in vendors] == [0, 0, 1]
    assert places == [Placement(replica="r2", hint="PREFIX_MATCH", ranked="r2", matched_tokens=1_500)]
    assert board.told == [("sent", "r2", None), ("ended", "r2", True)]


async def test_without_hints_a_prompt_stays_with_its_replica_and_short_ones_spread() -> None:
    reply = says(200, answers("hi"))
    async with engines(reply, reply, reply) as vendors, opened(fleet(ports(vendors))) as provider:
        for _ in range(6):
            asked, places = recorded(call(messages=LONG))
            await provider.complete(asked)
            assert places[0].hint is None
        assert sorted(len(vendor.requests) for vendor in vendors) == [0, 0, 6]


async def test_a_prefix_is_that_of_what_is_sent_wherever_the_callers_cache_marks_stand() -> None:
    part = {"type": "text", "text": LONG[0]["content"]}
    asked = {"role": "user", "content": [{"type": "text", "text": "And then? " * 400}]}
    mark = {"cache_control": {"type": "ephemeral"}}
    turns = ([{"role": "user", "content": [part | mark]}], [{"role": "user", "content": [part]}, asked | mark])
    reply, board = says(200, answers("hi")), Board()
    async with engines(reply) as vendors, opened(fleet(ports(vendors)), board) as provider:
        for messages in turns:
            one = call(messages=messages)
            request = msgspec.structs.replace(one.request, extended=True)
            await provider.complete(msgspec.structs.replace(one, request=request))
        sent = [request.body["messages"][0] for request in vendors[0].requests]
    first, second = board.hashes
    assert sent[0] == sent[1] == {"role": "user", "content": [part]}
    assert len(first) > 4
    assert second[: len(first) - 1] == first[:-1]


async def test_what_engines_have_no_words_for_reaches_none_of_them() -> None:
    async with engines(says(200, answers("hi"))) as vendors, opened(fleet(ports(vendors)), Board()) as provider:
        one = call(messages=[{"role": "user", "content": [{"type": "search_result"}]}])
        request = msgspec.structs.replace(one.request, extended=True)
        with pytest.raises(ProviderFailure) as failure:
            await provider.complete(msgspec.structs.replace(one, request=request))
        assert (failure.value.failure, failure.value.reached) == (Failure.UNSUPPORTED_FIELD, False)
        assert not failure.value.elsewhere
        assert vendors[0].requests == []


async def test_calls_that_nothing_speaks_for_spread_over_the_replicas() -> None:
    async with engines(silence, silence, silence) as vendors, opened(fleet(ports(vendors)), Board()) as provider:
        calls = [asyncio.ensure_future(provider.complete(call())) for _ in range(6)]
        async with asyncio.timeout(5):
            for vendor in vendors:
                await vendor.asked.wait()
            await asyncio.sleep(0.1)
        assert [len(vendor.requests) for vendor in vendors] == [2, 2, 2]
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_replica_that_is_switched_off_is_never_called_whatever_the_hint_says() -> None:
    reply = says(200, answers("hi"))
    async with engines(reply, reply) as vendors:
        asked = fleet(ports(vendors))
        assert asked.fleet is not None
        off = msgspec.structs.replace(asked.fleet.replicas[1], enabled=False)
        one = msgspec.structs.replace(asked.fleet, replicas=(asked.fleet.replicas[0], off))
        async with opened(msgspec.structs.replace(asked, fleet=one), Board(ranks(("r1", 9_999)))) as provider:
            asking, places = recorded(call(messages=LONG))
            await provider.complete(asking)
        assert [len(vendor.requests) for vendor in vendors] == [1, 0]
        assert (places[0].replica, places[0].ranked) == ("r0", "r1")


async def test_a_replica_outside_the_boundary_is_never_called_whatever_the_hint_says() -> None:
    async with engines(says(200, answers("hi"))) as vendors:
        asked = fleet([*ports(vendors), 0])
        assert asked.fleet is not None
        away = Replica(id="r1", endpoint="https://8.8.8.8/v1")
        one = msgspec.structs.replace(asked.fleet, replicas=(asked.fleet.replicas[0], away))
        async with opened(msgspec.structs.replace(asked, fleet=one), Board(ranks(("r1", 9_999)))) as provider:
            asking, places = recorded(call(messages=LONG))
            await provider.complete(asking)
        assert places[0].replica == "r0"


async def test_a_dead_replica_fails_one_call_that_says_so_and_then_rests() -> None:
    reply = says(200, answers("hi"))
    async with engines(reply, reply) as vendors:
        await vendors[1].stop()
        board = Board(ranks(("r1", 9_999)))
        async with opened(fleet(ports(vendors)), board) as provider:
            with pytest.raises(ProviderFailure) as failed:
                await provider.complete(call(messages=LONG))
            assert failed.value.failure is Failure.CONNECT
            assert failed.value.elsewhere
            for _ in range(3):
                await provider.complete(call(messages=LONG))
        assert len(vendors[0].requests) == 3
        assert board.told[:3] == [("sent", "r1", None), ("lost", "r1", None), ("ended", "r1", False)]


async def test_a_replica_that_is_back_is_found_beside_the_requests() -> None:
    reply = says(200, answers("hi"))
    async with engines(reply) as vendors:
        gone = kept_port()
        async with opened(fleet([vendors[0].port, gone]), Board(ranks(("r1", 9_999)))) as provider:
            with pytest.raises(ProviderFailure):
                await provider.complete(call(messages=LONG))
            async with await Vendor(reply).start(port=gone) as back, asyncio.timeout(5):
                await back.asked.wait()
                await asyncio.sleep(0.1)
                assert back.requests[0].line.startswith("GET /v1/models")
                asked, places = recorded(call(messages=LONG))
                await provider.complete(asked)
                assert places[0].replica == "r1"


async def test_a_replica_that_hangs_rests_after_one_request_and_one_that_is_only_slow_does_not() -> None:
    reply = says(200, answers("hi"))
    listed = says(200, {"data": []})
    board = Board(ranks(("r1", 9_999)))
    for back, replica in ((silence, "r0"), (listed, "r1")):
        async with engines(reply, silence) as vendors, opened(fleet(ports(vendors)), board) as provider:
            vendors[1].replies = [silence, back, reply]  # type: ignore[list-item]
            with pytest.raises(ProviderFailure) as failure:
                await provider.complete(call(messages=LONG, timeout_s=0.2))
            assert failure.value.failure is Failure.TIMEOUT
            async with asyncio.timeout(5):
                while len(vendors[1].requests) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                await asyncio.sleep(1.2)
            asked, places = recorded(call(messages=LONG))
            await provider.complete(asked)
            assert places[0].replica == replica


async def test_when_every_replica_is_dead_the_last_failure_is_the_capabilitys() -> None:
    async with engines(hangs_up, hangs_up) as vendors, opened(fleet(ports(vendors)), Board()) as provider:
        failed: list[str] = []
        elsewhere = []
        for _ in range(2):
            asked, places = recorded(msgspec.structs.replace(call(), failed_replicas=tuple(failed)))
            with pytest.raises(ProviderFailure) as failure:
                await provider.complete(asked)
            failed.append(places[0].replica)
            elsewhere.append(failure.value.elsewhere)
        assert sorted(failed) == ["r0", "r1"]
        assert elsewhere == [True, False]


async def test_a_request_goes_to_no_replica_on_which_it_has_failed_while_there_is_another() -> None:
    busy, well = says(503, {"error": {"message": "busy"}}), says(200, answers("hi"))
    async with engines(busy, well) as vendors, opened(fleet(ports(vendors)), Board(ranks(("r0", 9_999)))) as provider:
        with pytest.raises(ProviderFailure) as failure:
            await provider.complete(call(messages=LONG))
        assert failure.value.failure is Failure.OVERLOADED
        assert failure.value.elsewhere
        asked, places = recorded(msgspec.structs.replace(call(messages=LONG), failed_replicas=("r0",)))
        await provider.complete(asked)
        assert places[0].replica == "r1"


async def test_the_callers_fault_is_no_replicas() -> None:
    refused = says(400, {"error": {"message": "bad messages", "param": "messages"}})
    async with engines(refused, refused) as vendors, opened(fleet(ports(vendors))) as provider:
        for _ in range(3):
            with pytest.raises(ProviderFailure) as failure:
                await provider.complete(call())
            assert failure.value.failure is Failure.REJECTED_CONTENT
            assert not failure.value.elsewhere


async def test_a_fleet_is_exhausted_when_every_able_replica_is_above_its_bound() -> None:
    async with engines(silence, silence) as vendors, reaching() as outbound:
        board = Board()
        prefixes = ContentPrefixes(tenant="fleet", model="model-1", adapter="")
        advice = Advice(prefixes=prefixes, hints=board, deadline_s=0.5)
        asked = fleet(ports(vendors), pressure_max_percent=80)
        found = await open_provider(asked, None, outbound, SystemClock(), advice)
        assert found.exhausted is not None
        seen = []
        for pressures in ({}, {"r0": 0.9}, {"r0": 0.9, "r1": 0.8}, {"r0": 0.9, "r1": 0.81},
                          {"r0/dp0": 0.9, "r0/dp1": 0.1, "r1": 1.0}):  # fmt: skip
            board.pressures = pressures
            seen.append(found.exhausted())
        assert seen == [False, False, False, True, False]
        await found.provider.close()
