"""`terraflow hints sim-engine`: an engine without a model, for demos, replays and tests.

Prints one JSON line ({"base_url", "kv_events", "kv_replay", "pid"}) once it serves; ends with SIGTERM or SIGINT.
Exit codes: 0 ended as told, 2 cannot be: what was asked is no engine, or a port is taken.
"""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from terraflow.cli.ending import end

if TYPE_CHECKING:
    from terraflow.hints.engine.serve import Engine


def command(
    model: Annotated[str, typer.Option(help="The model's name.")] = "sim",
    host: Annotated[str, typer.Option(help="Address to listen on, for HTTP and ZeroMQ.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0 for a free one.")] = 0,
    events_port: Annotated[
        int, typer.Option(min=0, max=65535, help="ZeroMQ port of the KV events of rank 0; the other ranks' follow it.")
    ] = 0,
    replay_port: Annotated[
        int, typer.Option(min=0, max=65535, help="ZeroMQ port of rank 0's replay; the other ranks' follow it.")
    ] = 0,
    blocks: Annotated[int, typer.Option(min=1, max=10_000_000, help="Blocks that each rank's cache holds.")] = 4000,
    block_size: Annotated[int, typer.Option(min=1, max=4096, help="Tokens of a block.")] = 16,
    offload_blocks: Annotated[
        int, typer.Option(min=0, max=10_000_000, help="Blocks of each rank's second tier; 0: there is none.")
    ] = 0,
    ranks: Annotated[int, typer.Option(min=1, max=64, help="Data-parallel ranks, each with a cache and a feed.")] = 1,
    name_rank: Annotated[
        bool, typer.Option("--name-rank", help="Name the rank in events also when it is alone.")
    ] = False,
    lora: Annotated[list[str] | None, typer.Option(help="NAME=ID of an adapter served too; may be repeated.")] = None,
    tokenizer: Annotated[
        str, typer.Option(help="A tokenizer.json or a folder with one; `bytes`: one token a byte, and ChatML.")
    ] = "bytes",
    output_tokens: Annotated[
        int, typer.Option(min=1, max=65536, help="Tokens of an answer, unless fewer are asked.")
    ] = 64,
    prefill_tokens_per_s: Annotated[float, typer.Option(min=0.001, help="First come first served.")] = 8000.0,
    decode_tokens_per_s: Annotated[float, typer.Option(min=0.001, help="Of each request.")] = 100.0,
    load_tokens_per_s: Annotated[float, typer.Option(min=0.001, help="From the second tier.")] = 80000.0,
    speed: Annotated[float, typer.Option(min=0.001, help="So many times faster than that, all of it.")] = 1.0,
    encoding: Annotated[
        str, typer.Option(help="Of KV events, batch and event: array, map, array-of-maps or map-of-arrays.")
    ] = "array",
    hashes: Annotated[str, typer.Option(help="Form of block hashes: int, signed, bytes or text.")] = "int",
    lora_ids_only: Annotated[
        bool, typer.Option("--lora-ids-only", help="Events name an adapter by its id alone.")
    ] = False,
    topic: Annotated[str, typer.Option(help="ZeroMQ topic.")] = "kv-events",
    replay_topic: Annotated[bool, typer.Option("--replay-topic", help="Replayed batches carry the topic too.")] = False,
    kept_batches: Annotated[int, typer.Option(min=1, max=1_000_000, help="Batches kept for replay.")] = 10_000,
    salt: Annotated[str | None, typer.Option(help="Root of block hashes; otherwise a new one with each start.")] = None,
    faults: Annotated[
        bool, typer.Option("--faults", help="For tests: POST /faults sets what goes wrong; see also --fault.")
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="For tests: drop=SHARE, lose=SHARE, garbage=SHARE or stall_s=SECONDS; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of which batches go wrong.")] = 0,
) -> None:
    """Serve OpenAI's API with a prefix cache, a cost model, KV events and vLLM's metrics, and no model."""
    said = dict(locals())
    try:
        engine = _engine(said)
    except (ValueError, TypeError) as bad:
        end("hints sim-engine", str(bad), 2)
    _serve(engine)


_SPEEDS = ("prefill_tokens_per_s", "decode_tokens_per_s", "load_tokens_per_s", "speed")


def _engine(said: Mapping[str, Any]) -> Engine:
    """The engine of the options, by their names. Raises ValueError and TypeError for what is none."""
    import msgspec

    from terraflow.app.loading import plainly
    from terraflow.hints.engine.costs import Costs
    from terraflow.hints.engine.publish import Faults
    from terraflow.hints.engine.serve import Engine

    given = dict(_pair("--fault", one, float) for one in said["fault"] or ())
    for name in given:
        if name not in Faults.__struct_fields__:
            raise ValueError(f"--fault {name}: is none; there are {', '.join(Faults.__struct_fields__)}")
    faults = Faults(**given)
    fields = {
        **{name: value for name, value in said.items() if name in Engine.__struct_fields__},
        "loras": dict(_pair("--lora", one, int) for one in said["lora"] or ()),
        "costs": Costs(**{name: said[name] for name in _SPEEDS}),
        "lora_names": not said["lora_ids_only"],
        "faults": faults if said["faults"] or said["fault"] else None,
    }
    try:
        return msgspec.convert(fields, Engine)
    except msgspec.ValidationError as bad:
        path, words = plainly(Engine, str(bad))
        raise ValueError(f"--{str(path[0]).replace('_', '-')}: {words}" if path else words) from None


_Number = TypeVar("_Number", int, float)


def _pair(option: str, said: str, number: type[_Number]) -> tuple[str, _Number]:
    name, separator, value = said.partition("=")
    if not separator or not name:
        raise ValueError(f"{option} {said} is not NAME=NUMBER")
    try:
        return name, number(value)
    except ValueError:
        raise ValueError(f"{option} {said}: {value or 'nothing'} is no number") from None


def _serve(engine: Engine) -> None:
    import asyncio

    import uvloop
    import zmq

    async def serve() -> None:
        from terraflow.hints.engine.serve import serving

        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)
        async with serving(engine) as listening:
            said = {
                "base_url": f"{listening.base_url}/v1",
                "kv_events": listening.events,
                "kv_replay": listening.replays,
            }
            print(json.dumps({**said, "pid": os.getpid()}), flush=True)
            await told.wait()

    try:
        uvloop.run(serve())
    except zmq.ZMQError as trouble:
        ports = "; give another with --events-port or --replay-port, 0 for a free one"
        end("hints sim-engine", f"{trouble}{ports if trouble.errno == errno.EADDRINUSE else ''}", 2)
    except OSError as trouble:
        where = f"cannot listen on {engine.host}:{engine.port}"
        why = os.strerror(trouble.errno) if trouble.errno else str(trouble)
        end(
            "hints sim-engine",
            f"{where}: {why}; give another address or port with --host or --port, 0 for a free one",
            2,
        )
    except ValueError as trouble:
        end("hints sim-engine", str(trouble), 2)
