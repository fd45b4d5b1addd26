"""The vendors' own clients in async programs, many requests at once, and whoever gives up midway: what they hear, and
how often the model is asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.caller import until
from tests.harness.checks import Checks
from tests.harness.upstreams import DONE, END, USED, Gate, Upstreams, completion, flow, held, text
from tests.harness.vendor_clients import ASKED, Total
from tests.providers.vendor import Reply, Request, Vendor, says

TOTAL = '{"total": 5, "items": ["a", "b"]}'
SAID = "Certainly."
AT_ONCE = 50
CHAT: dict[str, Any] = {"model": "plain", "messages": ASKED}
MESSAGE: dict[str, Any] = CHAT | {"max_tokens": 50}


async def either(writer: asyncio.StreamWriter, request: Request) -> None:
    """Whole or streamed, an object for who asks for one."""
    said = TOTAL if "response_format" in request.body else SAID
    whole = says(200, completion(said))
    streamed = flow(text(said[:4]), text(said[4:]), END, USED, DONE)
    await (streamed if request.body.get("stream") else whole)(writer, request)


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(either)


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    return launch_shared(bundle.document(purpose("plain", remote("engine", vendor.port))), health_faults_max=10_000)


@pytest.fixture
async def open_ai(site: Site, vendor: Vendor) -> AsyncIterator[openai.AsyncOpenAI]:
    vendor.replies[:] = [either]
    async with openai.AsyncOpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, timeout=20) as client:
        yield client


@pytest.fixture
async def claude(site: Site, vendor: Vendor) -> AsyncIterator[anthropic.AsyncAnthropic]:
    vendor.replies[:] = [either]
    base_url = site.plane.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key=site.caller.api_key, timeout=20) as client:
        yield client


async def test_many_at_once_of_every_kind(
    open_ai: openai.AsyncOpenAI, claude: anthropic.AsyncAnthropic, vendor: Vendor
) -> None:
    async def chat() -> str:
        return (await open_ai.chat.completions.create(**CHAT)).choices[0].message.content or ""

    async def chat_streamed() -> str:
        async with open_ai.chat.completions.stream(**CHAT) as stream:
            return (await stream.get_final_completion()).choices[0].message.content or ""

    async def message() -> str:
        [block] = (await claude.messages.create(**MESSAGE)).content
        return block.text if block.type == "text" else ""

    async def message_streamed() -> str:
        async with claude.messages.stream(**MESSAGE) as stream:
            return await stream.get_final_text()

    before = len(vendor.requests)
    kinds = (chat, chat_streamed, message, message_streamed)
    heard = await asyncio.gather(*(kinds[number % len(kinds)]() for number in range(AT_ONCE)))
    assert heard == [SAID] * AT_ONCE
    assert len(vendor.requests) - before == AT_ONCE


async def test_objects_in_streams(open_ai: openai.AsyncOpenAI, claude: anthropic.AsyncAnthropic) -> None:
    async with open_ai.chat.completions.stream(**CHAT, response_format=Total) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert kinds[-1] == "content.done"
    assert final.choices[0].message.parsed == Total(total=5, items=["a", "b"])
    async with claude.messages.stream(**MESSAGE, output_format=Total) as messages:
        assert (await messages.get_final_message()).parsed_output == Total(total=5, items=["a", "b"])


async def test_the_beta_path_of_anthropics_client(claude: anthropic.AsyncAnthropic) -> None:
    """It asks with a query, and with names of what it would try."""
    made = await claude.beta.messages.create(**MESSAGE, betas=["interleaved-thinking-2025-05-14"])
    assert [block.text for block in made.content if block.type == "text"] == [SAID]
    async with claude.beta.messages.stream(**MESSAGE, betas=["a", "b"]) as stream:
        assert await stream.get_final_text() == SAID
    counted = await claude.beta.messages.count_tokens(model="plain", messages=ASKED)
    assert counted.input_tokens > 0


async def test_responses_that_are_read_as_they_come(
    open_ai: openai.AsyncOpenAI, claude: anthropic.AsyncAnthropic
) -> None:
    async with open_ai.chat.completions.with_streaming_response.create(**CHAT, stream=True) as raw:
        lines = [line async for line in raw.iter_lines() if line]
        assert raw.headers["x-terraflow-capability"] == "engine"
    assert lines[-1] == "data: [DONE]"
    async with claude.messages.with_streaming_response.create(**MESSAGE) as other:
        assert other.headers["x-terraflow-reason"] == Governed.PERMITTED
        assert (await other.parse()).stop_reason == "end_turn"


async def closed_by(vendor: Vendor, before: int) -> None:
    """Until the plane has closed one more of its connections to the model."""
    await asyncio.to_thread(until, lambda: len(vendor.closed_at) > before, 5.0)


@pytest.mark.parametrize("of", ["openai", "anthropic"])
async def test_who_leaves_a_stream_ends_the_models_call(
    of: str,
    open_ai: openai.AsyncOpenAI,
    claude: anthropic.AsyncAnthropic,
    vendor: Vendor,
    site: Site,
    checks: Checks,
) -> None:
    vendor.replies[:] = [flow(text("Cert"), 30.0, text("ainly."), END, DONE)]
    before = len(vendor.closed_at)
    if of == "openai":
        chunks = await open_ai.chat.completions.create(**CHAT, stream=True)
        assert (await anext(aiter(chunks))).choices[0].delta.content == "Cert"
        request_id = chunks.response.headers["x-terraflow-request-id"]
        await chunks.close()
    else:
        async with claude.messages.stream(**MESSAGE) as stream:
            assert await anext(aiter(stream.text_stream)) == "Cert"
            request_id = stream.response.headers["x-terraflow-request-id"]
    await closed_by(vendor, before)
    await asyncio.to_thread(until, lambda: site.caller.get(f"/evidence/{request_id}").json()["outcome"] is not None)
    checks.outcome(site.caller, request_id, Governed.CANCELLED, detail="caller_left")


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_clients_timeout_ends_the_models_call_and_each_retry_is_a_call(
    retries: int, open_ai: openai.AsyncOpenAI, vendor: Vendor
) -> None:
    gate = Gate()
    waits: Reply = held(gate, either)
    vendor.replies[:] = [waits]
    asked, closed = len(vendor.requests), len(vendor.closed_at)
    with pytest.raises(openai.APITimeoutError):
        await open_ai.with_options(timeout=0.5, max_retries=retries).chat.completions.create(**CHAT)
    for number in range(retries + 1):
        await closed_by(vendor, closed + number)
    assert len(vendor.requests) - asked == retries + 1
    gate.open()


async def test_a_task_that_is_cancelled(claude: anthropic.AsyncAnthropic, vendor: Vendor) -> None:
    gate = Gate()
    vendor.replies[:] = [held(gate, either)]
    asked, closed = len(vendor.requests), len(vendor.closed_at)
    waiting = asyncio.create_task(claude.messages.create(**MESSAGE))
    await asyncio.to_thread(until, lambda: len(vendor.requests) > asked)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await closed_by(vendor, closed)
    assert len(vendor.requests) - asked == 1
    gate.open()


@pytest.mark.parametrize(("retries", "asked"), [(0, 3), (1, 6)])
async def test_the_planes_retries_and_the_clients_multiply(
    retries: int, asked: int, open_ai: openai.AsyncOpenAI, vendor: Vendor
) -> None:
    vendor.replies[:] = [says(503, {"error": {"message": "busy"}})]
    before = len(vendor.requests)
    with pytest.raises(openai.InternalServerError) as met:
        await open_ai.with_options(max_retries=retries).chat.completions.create(**CHAT)
    assert met.value.code == Governed.PROVIDER_ERROR_UNRECOVERED
    assert len(vendor.requests) - before == asked
