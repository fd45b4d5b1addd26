"""One suite of behaviour over the three kinds of provider: the simulated one, and two that speak over HTTP with a
server which performs the same acts in its vendor's wire form."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager

import pytest

from terraflow.contracts.capability import ProviderKind
from terraflow.contracts.script import Act, FinishReason, SimulatedToolCall, SimulatedUsage
from terraflow.ports.upstream import Failure, Provider, ProviderFailure, Usage
from tests.providers.facing import facing_vendor
from tests.providers.sample import call, collect, finishes, text_of, tool_calls_of
from tests.providers.speakers import ANTHROPIC_REFUSALS, OPENAI_REFUSALS, VENDOR_TEXT, speak_anthropic, speak_openai
from tests.providers.vendor import Vendor

KINDS = [ProviderKind.SIMULATED, ProviderKind.OPENAI, ProviderKind.ANTHROPIC]
REMOTE = [ProviderKind.OPENAI, ProviderKind.ANTHROPIC]
SPEAKERS = {ProviderKind.OPENAI: speak_openai, ProviderKind.ANTHROPIC: speak_anthropic}
every = pytest.mark.parametrize("kind", KINDS)
remote = pytest.mark.parametrize("kind", REMOTE)
modes = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

TEXT = "The oldest invoice was settled eleven days before it was due."
CALLS = (
    SimulatedToolCall(name="look_up", arguments='{"invoice": 7, "fields": ["date"]}'),
    SimulatedToolCall(name="add", arguments='{"a": 1}'),
)


def playing(kind: ProviderKind, *acts: Act) -> AbstractAsyncContextManager[tuple[Provider, Vendor]]:
    """A provider of this kind that performs these acts, and the vendor behind it, if there is one."""
    if kind in SPEAKERS:
        return facing_vendor(kind, *(SPEAKERS[kind](act) for act in acts), acts=acts)
    return facing_vendor(kind, endpoint=None, acts=acts)


@every
async def test_a_whole_answer(kind: ProviderKind):
    usage = SimulatedUsage(input=11, output=7, cached_input=3, cache_write=2, reasoning=5)
    async with playing(kind, Act(text=TEXT, usage=usage)) as (provider, _):
        answer = await provider.complete(call())
    assert [c["index"] for c in answer.choices] == [0]
    assert answer.choices[0]["message"]["role"] == "assistant"
    assert answer.choices[0]["message"]["content"] == TEXT
    assert answer.choices[0]["finish_reason"] == "stop"
    assert answer.usage == Usage(input=11, output=7, cached_input=3, cache_write=2, reasoning=5)


@every
async def test_an_answer_asked_for_whole_comes_whole_though_its_caller_asked_for_a_stream(kind: ProviderKind):
    """A stream that must be checked before it may go is collected: the vendor must not be told to stream."""
    async with playing(kind, Act(text=TEXT)) as (provider, _):
        answer = await provider.complete(call(stream=True))
    assert answer.choices[0]["message"]["content"] == TEXT


@every
async def test_a_streamed_answer(kind: ProviderKind):
    usage = SimulatedUsage(input=11, output=7, cached_input=3, cache_write=2, reasoning=5)
    async with playing(kind, Act(text=TEXT, usage=usage, chunks=6)) as (provider, _):
        chunks = await collect(provider, call(stream=True))
    assert text_of(chunks) == TEXT
    assert chunks[0].choices[0]["delta"]["role"] == "assistant"
    assert sum(bool(c.choices and c.choices[0]["delta"].get("content")) for c in chunks) == 6
    assert finishes(chunks) == ["stop"]
    assert [c.usage for c in chunks if c.usage] == [
        Usage(input=11, output=7, cached_input=3, cache_write=2, reasoning=5)
    ]


@every
async def test_parallel_tool_calls_keep_their_places(kind: ProviderKind):
    async with playing(kind, Act(tool_calls=CALLS)) as (provider, _):
        answer = await provider.complete(call())
        chunks = await collect(provider, call(stream=True))
    whole = answer.choices[0]["message"]["tool_calls"]
    assert [c["function"]["name"] for c in whole] == ["look_up", "add"]
    assert [c["function"]["arguments"].replace(" ", "") for c in whole] == [c.arguments.replace(" ", "") for c in CALLS]
    assert answer.choices[0]["finish_reason"] == "tool_calls"
    assert tool_calls_of(chunks) == {
        i: {"id": f"call_{i}", "name": c.name, "arguments": c.arguments} for i, c in enumerate(CALLS)
    }
    assert finishes(chunks) == ["tool_calls"]


@every
async def test_reasoning_comes_out_beside_the_text(kind: ProviderKind):
    async with playing(kind, Act(text=TEXT, reasoning="First I think.")) as (provider, _):
        answer = await provider.complete(call())
        chunks = await collect(provider, call(stream=True))
    assert answer.choices[0]["message"]["reasoning_content"] == "First I think."
    thought = "".join(c["delta"].get("reasoning_content") or "" for chunk in chunks for c in chunk.choices)
    assert thought == "First I think."
    assert text_of(chunks) == TEXT


@every
@modes
async def test_an_output_limit_is_always_sent_and_kept(kind: ProviderKind, stream: bool):
    async with playing(kind, Act(text=TEXT)) as (provider, _):
        asked = call(stream=stream, output_tokens_max=5)
        if stream:
            chunks = await collect(provider, asked)
            assert (text_of(chunks), finishes(chunks)) == (TEXT[:20], ["length"])
        else:
            choice = (await provider.complete(asked)).choices[0]
            assert (choice["message"]["content"], choice["finish_reason"]) == (TEXT[:20], "length")


@every
async def test_a_filtered_finish_is_told(kind: ProviderKind):
    async with playing(kind, Act(text=TEXT, finish_reason=FinishReason.CONTENT_FILTER)) as (provider, _):
        assert (await provider.complete(call())).choices[0]["finish_reason"] == "content_filter"
        assert finishes(await collect(provider, call(stream=True))) == ["content_filter"]


async def fails(provider: Provider, stream: bool, timeout_s: float = 5.0) -> tuple[ProviderFailure, list]:
    chunks: list = []
    with pytest.raises(ProviderFailure) as caught:
        if stream:
            async for chunk in provider.stream(call(stream=True, timeout_s=timeout_s)):
                chunks += [chunk]
        else:
            await provider.complete(call(timeout_s=timeout_s))
    return caught.value, chunks


def producible() -> list:
    """Every failure with every provider that can produce it by an act; CONNECT and UNSUPPORTED_FIELD have tests of
    their own for the remote ones."""
    rows = [(ProviderKind.SIMULATED, failure) for failure in Failure]
    by_act = [Failure.TIMEOUT, Failure.CUT_OFF, Failure.MALFORMED]
    rows += [(ProviderKind.OPENAI, failure) for failure in [*OPENAI_REFUSALS, *by_act]]
    rows += [(ProviderKind.ANTHROPIC, failure) for failure in [*ANTHROPIC_REFUSALS, *by_act]]
    return rows


@pytest.mark.parametrize(("kind", "failure"), producible(), ids=lambda value: value.value)
@modes
async def test_every_failure_is_raised_before_the_first_chunk(kind: ProviderKind, failure: Failure, stream: bool):
    async with playing(kind, Act(text=TEXT, fail=failure)) as (provider, _):
        failed, chunks = await fails(provider, stream, timeout_s=0.3)
    assert failed.failure is failure
    assert chunks == []
    reached = {Failure.TIMEOUT, Failure.CUT_OFF, Failure.SERVER_ERROR, Failure.MALFORMED, Failure.CONTENT_FILTERED}
    assert failed.reached is (failure in reached)
    assert failed.__context__ is None
    assert failed.__cause__ is None
    assert VENDOR_TEXT not in repr(failed.__dict__)


@every
@modes
async def test_retry_after_is_kept(kind: ProviderKind, stream: bool):
    async with playing(kind, Act(fail=Failure.RATE_LIMITED, retry_after_s=7.0)) as (provider, _):
        failed, _ = await fails(provider, stream)
    assert failed.retry_after_s == 7.0


@every
async def test_a_stream_cut_midway_is_told_after_its_chunks(kind: ProviderKind):
    async with playing(kind, Act(text=TEXT, fail=Failure.CUT_OFF, fail_after_chunks=4)) as (provider, _):
        failed, chunks = await fails(provider, stream=True)
    assert failed.failure is Failure.CUT_OFF
    assert failed.reached
    assert TEXT.startswith(text_of(chunks))
    assert finishes(chunks) == []


@every
async def test_malformed_midway(kind: ProviderKind):
    async with playing(kind, Act(text=TEXT, fail=Failure.MALFORMED, fail_after_chunks=4)) as (provider, _):
        failed, chunks = await fails(provider, stream=True)
    assert failed.failure is Failure.MALFORMED
    assert chunks


@every
@modes
async def test_a_stall_ends_at_the_deadline(kind: ProviderKind, stream: bool):
    async with playing(kind, Act(text=TEXT, stall_after_chunks=3)) as (provider, _):
        started = time.monotonic()
        failed, chunks = await fails(provider, stream, timeout_s=0.25)
        took = time.monotonic() - started
    assert failed.failure is Failure.TIMEOUT
    assert 0.2 < took < 1.0
    assert bool(chunks) is stream


@every
@modes
async def test_an_answer_later_than_the_deadline_is_a_timeout(kind: ProviderKind, stream: bool):
    async with playing(kind, Act(text=TEXT, latency_ms=3_000)) as (provider, _):
        failed, chunks = await fails(provider, stream, timeout_s=0.15)
    assert (failed.failure, chunks) == (Failure.TIMEOUT, [])


@every
async def test_acts_follow_each_other_and_the_last_repeats(kind: ProviderKind):
    async with playing(kind, Act(fail=Failure.OVERLOADED), Act(text="two"), Act(text="three")) as (provider, _):
        failed, _ = await fails(provider, stream=False)
        said = [(await provider.complete(call())).choices[0]["message"]["content"] for _ in range(3)]
    assert failed.failure is Failure.OVERLOADED
    assert said == ["two", "three", "three"]


@remote
async def test_connections_are_reused(kind: ProviderKind):
    async with playing(kind, Act(text=TEXT)) as (provider, vendor):
        for _ in range(3):
            await provider.complete(call())
            assert text_of(await collect(provider, call(stream=True))) == TEXT
            await asyncio.sleep(0.01)
        assert vendor.connections == 1


@remote
async def test_closing_a_stream_closes_the_connection_at_once(kind: ProviderKind):
    async with playing(kind, Act(text=TEXT, chunk_interval_ms=50)) as (provider, vendor):
        chunks = provider.stream(call(stream=True))
        async for chunk in chunks:
            if chunk.choices and chunk.choices[0]["delta"].get("content"):
                break
        left = time.monotonic()
        await chunks.aclose()
        assert await vendor.closing() - left < 0.1


@remote
@modes
async def test_cancelling_closes_the_connection_at_once(kind: ProviderKind, stream: bool):
    async with playing(kind, Act(text=TEXT, stall_after_chunks=2)) as (provider, vendor):
        asked = call(stream=stream)
        task = asyncio.create_task(collect(provider, asked) if stream else provider.complete(asked))
        await vendor.asked.wait()
        await asyncio.sleep(0.05)
        left = time.monotonic()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert await vendor.closing() - left < 0.1


@remote
@modes
async def test_a_server_that_is_not_there(kind: ProviderKind, stream: bool):
    async with playing(kind, Act(text=TEXT)) as (provider, vendor):
        await vendor.stop()
        failed, _ = await fails(provider, stream)
        await vendor.start()
    assert (failed.failure, failed.reached) == (Failure.CONNECT, False)
