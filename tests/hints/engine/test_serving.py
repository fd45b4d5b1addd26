"""The simulated engine over its real sockets: OpenAI's API, KV events and replay, metrics, faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import msgspec
import zmq
import zmq.asyncio

from terraflow.hints.engine.costs import Costs
from terraflow.hints.engine.publish import END, Faults
from terraflow.hints.engine.serve import Engine, Listening, serving

FAST = Costs(speed=1000.0)
LONG = "What was agreed in the contract of the third of May about late deliveries? "


class Open(NamedTuple):
    """A running engine and its client."""

    where: Listening
    http: aiohttp.ClientSession

    async def chat(self, text: str = LONG, **more: Any) -> dict[str, Any]:
        said = {"model": "sim", "messages": [{"role": "user", "content": text}], "max_tokens": 8, **more}
        async with self.http.post("/v1/chat/completions", json=said) as answer:
            return {"status": answer.status, **json.loads(await answer.read())}

    async def metric(self, name: str, engine: int = 0) -> float:
        async with self.http.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return float(next(line for line in lines if line.startswith(f'{name}{{engine="{engine}"')).split()[-1])

    async def reaches(self, name: str, value: float) -> None:
        for _ in range(1000):
            if await self.metric(name) == value:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} never became {value}")


@contextlib.asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[Open]:
    async with (
        serving(Engine(**{"costs": FAST, **options})) as where,
        aiohttp.ClientSession(base_url=where.base_url) as http,
    ):
        yield Open(where, http)


@contextlib.contextmanager
def _socket(kind: int, endpoint: str) -> Any:
    context = zmq.asyncio.Context()
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(endpoint)
    try:
        yield socket
    finally:
        socket.close()
        context.term()


async def _replay(endpoint: str, start: int) -> list[list[bytes]]:
    with _socket(zmq.DEALER, endpoint) as dealer:
        await dealer.send_multipart([b"", start.to_bytes(8, "big")])
        batches = []
        while True:
            batch = await asyncio.wait_for(dealer.recv_multipart(), 10)
            if batch[-2] == END:
                return batches
            batches.append(batch)


async def test_the_second_time_is_cached() -> None:
    async with opened() as engine:
        first, second = await engine.chat(), await engine.chat()
        usage = second["usage"]
        assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] // 16 * 16
        assert (usage["completion_tokens"], second["choices"][0]["finish_reason"]) == (8, "length")
        assert first["choices"] == second["choices"]
        assert await engine.metric("vllm:prefix_cache_queries_total") == 2 * usage["prompt_tokens"]
        assert await engine.metric("vllm:prefix_cache_hits_total") == usage["prompt_tokens_details"]["cached_tokens"]
        assert await engine.metric("vllm:num_requests_running") == 0


async def test_a_conversation_finds_its_earlier_answer_too() -> None:
    async with opened() as engine:
        first = await engine.chat(max_tokens=64)
        turns = [
            {"role": "user", "content": LONG},
            first["choices"][0]["message"],
            {"role": "user", "content": "And then?"},
        ]
        second = await engine.chat(messages=turns)
        known = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"]
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16


async def test_a_stream_says_the_same_and_its_usage_when_asked() -> None:
    async with opened() as engine:
        whole = await engine.chat()
        said = {"model": "sim", "messages": [{"role": "user", "content": LONG}], "max_tokens": 8, "stream": True}
        said["stream_options"] = {"include_usage": True}
        async with engine.http.post("/v1/chat/completions", json=said) as answer:
            lines = [line[6:] for line in (await answer.text()).split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        *chunks, last = [json.loads(line) for line in lines]
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        assert text == whole["choices"][0]["message"]["content"]
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 8)


async def test_plain_completions_take_text_and_token_ids() -> None:
    async with opened() as engine:
        for prompt, tokens in (("hello", 5), (["hello"], 5), ([1, 2, 3], 3)):
            said = {"model": "sim", "prompt": prompt, "max_tokens": 4}
            async with engine.http.post("/v1/completions", json=said) as answer:
                body = await answer.json()
            assert body["usage"]["prompt_tokens"] == tokens
            assert body["object"] == "text_completion"


async def test_what_is_no_request_is_refused_as_engines_refuse() -> None:
    async with opened() as engine:
        assert (await engine.chat(model="other"))["status"] == 404
        assert (await engine.chat(n=2))["status"] == 400
        assert (await engine.chat(max_tokens=0))["status"] == 400
        assert (await engine.chat(messages=[]))["status"] == 400
        assert (await engine.chat(messages=[{"content": "x"}]))["status"] == 400
        image = [{"type": "image_url", "image_url": {"url": "x"}}]
        assert (await engine.chat(messages=[{"role": "user", "content": image}]))["status"] == 400
        for body in (b"{", b'{"a":' * 50_000):
            async with engine.http.post("/v1/chat/completions", data=body) as answer:
                assert answer.status == 400
        async with engine.http.post("/faults", json={}) as answer:
            assert answer.status == 404, "faults are not there unless asked for"


async def test_events_and_their_replay_are_the_same() -> None:
    async with opened(topic="kv") as engine:
        with _socket(zmq.SUB, engine.where.events[0]) as subscriber:
            subscriber.subscribe(b"kv")
            live: list[list[bytes]] = []
            for turn in range(100):
                await engine.chat(f"{turn} {LONG}")
                with contextlib.suppress(TimeoutError):
                    live.append(await asyncio.wait_for(subscriber.recv_multipart(), 0.05))
                if len(live) == 2:
                    break
        kept = await _replay(engine.where.replays[0], 0)
        assert [int.from_bytes(batch[1], "big") for batch in kept] == list(range(len(kept)))
        assert live[0][0] == b"kv"
        assert live[0][1:] in [batch[1:] for batch in kept]
        _, events = msgspec.msgpack.decode(kept[0][2])
        assert (events[0][0], events[0][2], events[0][6]) == ("BlockStored", None, "GPU")
        assert len(events[0][3]) == 16 * len(events[0][1])
        assert len(await _replay(engine.where.replays[0], len(kept) - 1)) == 1


async def test_a_replay_may_carry_the_topic_and_ignores_what_is_no_request() -> None:
    async with opened(replay_topic=True, topic="t") as engine:
        await engine.chat()
        with _socket(zmq.DEALER, engine.where.replays[0]) as dealer:
            await dealer.send_multipart([b"", b"short"])
            await dealer.send_multipart([b"no", b"delimiter", b"here"])
        assert (await _replay(engine.where.replays[0], 0))[0][:3] == [b"", b"t", bytes(8)]


async def test_a_restart_begins_the_sequence_anew_with_other_hashes() -> None:
    batches = []
    for _ in range(2):
        async with opened() as engine:
            await engine.chat()
            batches.append((await _replay(engine.where.replays[0], 0))[0])
    assert batches[0][1] == batches[1][1] == bytes(8)
    first, second = (msgspec.msgpack.decode(batch[2])[1][0] for batch in batches)
    assert first[3] == second[3] and first[1] != second[1]


async def test_ranks_have_caches_and_feeds_of_their_own() -> None:
    async with opened(ranks=2, encoding="map") as engine:
        for rank in ("0", "1"):
            said = {"model": "sim", "messages": [{"role": "user", "content": LONG}], "max_tokens": 2}
            headers = {"x-data-parallel-rank": rank}
            async with engine.http.post("/v1/chat/completions", json=said, headers=headers) as answer:
                assert (await answer.json())["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            assert await engine.metric("vllm:prompt_tokens_total", int(rank)) > 0
        for rank, endpoint in enumerate(engine.where.replays):
            batches = await _replay(endpoint, 0)
            assert {msgspec.msgpack.decode(batch[2])["data_parallel_rank"] for batch in batches} == {rank}
        async with engine.http.post("/v1/chat/completions", json=said, headers={"x-data-parallel-rank": "2"}) as answer:
            assert answer.status == 400


async def test_adapters_are_models_and_share_no_block() -> None:
    async with opened(loras={"fine": 3}) as engine:
        await engine.chat()
        assert (await engine.chat(model="fine"))["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        async with engine.http.get("/v1/models") as answer:
            assert [card["id"] for card in (await answer.json())["data"]] == ["sim", "fine"]
        batches = await _replay(engine.where.replays[0], 0)
        assert msgspec.msgpack.decode(batches[-1][2])[1][0][5::2] == [3, "fine"]


async def test_prefill_is_first_come_first_served_and_counted_while_it_waits() -> None:
    async with opened(costs=Costs(prefill_tokens_per_s=1000.0, decode_tokens_per_s=1e6), waiting_max=2) as engine:
        calls = [asyncio.create_task(engine.chat(f"{turn}" + "x" * 150)) for turn in range(5)]
        await engine.reaches("vllm:num_requests_waiting", 2)
        assert await engine.metric("vllm:num_requests_running") == 1
        assert await engine.metric("vllm:kv_cache_usage_perc") > 0
        answers = await asyncio.gather(*calls)
        assert sorted(answer["status"] for answer in answers) == [200, 200, 200, 503, 503]


async def test_a_caller_that_leaves_gives_everything_back() -> None:
    async with opened(costs=Costs(prefill_tokens_per_s=100.0)) as engine:
        call = asyncio.create_task(engine.chat())
        await engine.reaches("vllm:num_requests_running", 1)
        call.cancel()
        await engine.reaches("vllm:num_requests_running", 0)
        assert await engine.metric("vllm:kv_cache_usage_perc") == 0
        assert await _replay(engine.where.replays[0], 0) == []


async def test_the_cache_is_cleared_when_asked() -> None:
    async with opened() as engine:
        await engine.chat()
        async with engine.http.post("/reset_prefix_cache") as answer:
            assert answer.status == 200
        assert (await engine.chat())["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        batches = await _replay(engine.where.replays[0], 0)
        assert ["AllBlocksCleared"] in [msgspec.msgpack.decode(batch[2])[1][0] for batch in batches]


async def _set(engine: Open, faults: dict[str, float], status: int = 204) -> None:
    async with engine.http.post("/faults", json=faults) as answer:
        assert answer.status == status


async def test_batches_go_wrong_when_they_are_asked_to() -> None:
    async with opened(faults=Faults(lose=1.0)) as engine:
        await engine.chat("lost" + LONG)
        await _set(engine, {"garbage": 1.0})
        await engine.chat("garbage" + LONG)
        await _set(engine, {"drop": 7}, 400)
        kept = await _replay(engine.where.replays[0], 0)
        assert int.from_bytes(kept[0][1], "big") > 0, "what was lost is not replayed"
        assert all(batch[2].startswith(b"\xc1") for batch in kept)


async def test_what_is_dropped_is_replayed() -> None:
    async with opened(faults=Faults()) as engine:
        with _socket(zmq.SUB, engine.where.events[0]) as subscriber:
            subscriber.subscribe(b"")
            heard: list[int] = []
            for turn in range(100):
                await engine.chat(f"{turn} {LONG}", max_tokens=1)
                with contextlib.suppress(TimeoutError):
                    heard.append(int.from_bytes((await asyncio.wait_for(subscriber.recv_multipart(), 0.05))[1], "big"))
                if heard:
                    break
            await _set(engine, {"drop": 1.0})
            await engine.chat("dropped" + LONG, max_tokens=1)
            await _set(engine, {})
            await engine.chat("heard" + LONG, max_tokens=1)
            while heard[-1] + 1 == len(heard) + heard[0]:
                heard.append(int.from_bytes((await asyncio.wait_for(subscriber.recv_multipart(), 10))[1], "big"))
        missed = set(range(heard[0], heard[-1])) - set(heard)
        kept = {int.from_bytes(batch[1], "big") for batch in await _replay(engine.where.replays[0], 0)}
        assert missed and missed <= kept


async def test_a_stalled_engine_answers_late() -> None:
    async with opened(faults=Faults(stall_s=0.2)) as engine:
        begun = asyncio.get_running_loop().time()
        async with engine.http.get("/health") as answer:
            assert answer.status == 200
        assert asyncio.get_running_loop().time() - begun >= 0.2
