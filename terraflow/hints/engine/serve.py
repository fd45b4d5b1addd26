"""An engine put together and served, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from terraflow.hints.engine.blocks import HashForm
from terraflow.hints.engine.costs import Costs
from terraflow.hints.engine.http import Front
from terraflow.hints.engine.memory import Memory
from terraflow.hints.engine.publish import Faults, Publisher
from terraflow.hints.engine.rank import Rank
from terraflow.hints.engine.wire import Encoding, Form
from terraflow.hints.tokens.loaded import BYTES, LoadedTokenizers, TokenizerFiles

RANKS_MAX = 64


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine is. Ports of 0 are free ones; a rank's ZeroMQ ports follow those of rank 0, as vLLM's do."""

    model: str = "sim"
    loras: Mapping[str, int] = {}
    """Adapters served beside the model, and their ids."""
    tokenizer: str = BYTES
    """A tokenizer.json, a folder with one, or the tokenizer of one token a byte that is built in."""
    host: str = "127.0.0.1"
    port: int = 0
    events_port: int = 0
    replay_port: int = 0
    blocks: int = 4_000
    """Of each rank."""
    block_size: int = 16
    offload_blocks: int = 0
    """Of each rank's second tier; 0: none."""
    ranks: int = 1
    name_rank: bool = False
    """Say the rank in each batch also when there is one alone."""
    costs: Costs = Costs()
    running_max: int = 256
    waiting_max: int = 1_024
    output_tokens: int = 64
    encoding: Encoding = Encoding.ARRAYS
    hashes: HashForm = HashForm.INT
    lora_names: bool = True
    topic: str = "kv-events"
    replay_topic: bool = False
    kept_batches: int = 10_000
    salt: str | None = None
    """None: a new one with each start, so that hashes of before mean nothing."""
    faults: Faults | None = None
    """None: none, and none can be set."""
    seed: int = 0


class _Tokens(NamedTuple):
    loaded: LoadedTokenizers
    model: str

    def text(self, text: str) -> Sequence[int] | None:
        return self.loaded.text(self.model, text)

    def messages(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> Sequence[int] | None:
        return self.loaded.messages(self.model, messages, tools)


class Listening(NamedTuple):
    """Where an engine is to be found."""

    base_url: str
    events: list[str]
    replays: list[str]


@contextlib.asynccontextmanager
async def serving(engine: Engine) -> AsyncIterator[Listening]:
    """Serve while the block runs. Raises OSError and zmq.ZMQError for what cannot be bound, ValueError for what makes
    no engine or no tokenizer."""
    if not 1 <= engine.ranks <= RANKS_MAX or engine.block_size < 1:
        raise ValueError(f"an engine has 1 to {RANKS_MAX} ranks, and blocks of one token at least")
    tokens = _Tokens(LoadedTokenizers({engine.model: TokenizerFiles(engine.tokenizer)}), engine.model)
    salt = os.urandom(16) if engine.salt is None else engine.salt.encode()
    async with contextlib.AsyncExitStack() as stack:
        publishers: list[Publisher] = []
        ranks: list[Rank] = []
        for number in range(engine.ranks):
            publisher = _publisher(engine, number)
            stack.callback(publisher.close)
            publishers.append(publisher)
            ranks.append(_rank(engine, publisher, salt))
            await stack.enter_async_context(_running(publisher))
        front = Front(
            model=engine.model,
            adapters=list(engine.loras),
            ranks=ranks,
            publishers=publishers,
            tokens=tokens,
            output_tokens=engine.output_tokens,
            faults=engine.faults is not None,
        )
        runner = web.AppRunner(front.application(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, engine.host, engine.port, backlog=1024)
        await site.start()
        port = runner.addresses[0][1]
        host = f"[{engine.host}]" if ":" in engine.host else engine.host
        yield Listening(
            f"http://{host}:{port}",
            [publisher.endpoint for publisher in publishers],
            [publisher.replay_endpoint for publisher in publishers],
        )


def _publisher(engine: Engine, number: int) -> Publisher:
    named = engine.ranks > 1 or engine.name_rank
    return Publisher(
        endpoint=_address(engine.host, engine.events_port, number),
        replay_endpoint=_address(engine.host, engine.replay_port, number),
        form=Form(
            encoding=engine.encoding,
            hashes=engine.hashes,
            rank=number if named else None,
            loras=dict(engine.loras),
            lora_names=engine.lora_names,
        ),
        topic=engine.topic,
        replay_topic=engine.replay_topic,
        kept_batches=engine.kept_batches,
        faults=engine.faults,
        seed=engine.seed + number,
    )


def _rank(engine: Engine, publisher: Publisher, salt: bytes) -> Rank:
    return Rank(
        memory=Memory(engine.blocks, engine.offload_blocks),
        costs=engine.costs,
        block_size=engine.block_size,
        salt=salt,
        publish=publisher.publish,
        running_max=engine.running_max,
        waiting_max=engine.waiting_max,
    )


def _address(host: str, port: int, number: int) -> str:
    where = f"[{host}]" if ":" in host else host
    return f"tcp://{where}:{port + number if port else '*'}"


@contextlib.asynccontextmanager
async def _running(publisher: Publisher) -> AsyncIterator[None]:
    task = asyncio.create_task(publisher.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
