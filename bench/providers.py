"""What an adapter costs: CPU of a whole call, and of a chunk, against the mock upstream in another process.

`python -m bench.providers [--calls N]` prints one JSON object; the figures are this process's CPU alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import uvloop

from terraflow.contracts.capability import (
    Boundary,
    Capability,
    DataTerms,
    Lifecycle,
    PrefixCache,
    ProviderKind,
)
from terraflow.ports.upstream import Call, ModelRequest
from terraflow.providers.endpoint import parse_networks, parse_place
from terraflow.providers.openai import OpenAiProvider
from terraflow.providers.outbound import Outbound

_CHUNKS = 100
_AT_ONCE = 16


def _capability(port: int, model: str) -> Capability:
    return Capability(
        id="bench",
        provider=ProviderKind.OPENAI,
        model=model,
        family="mock",
        tier="standard",
        boundary=Boundary.PRIVATE,
        jurisdiction="local",
        terms=DataTerms(trains=False, retention_days=0),
        data_class_max="restricted",
        sensitive_types=(),
        consequence_tiers=("low",),
        lifecycle=Lifecycle.APPROVED,
        context_window_tokens=128_000,
        output_tokens_max=4_096,
        tools=True,
        prefix_cache=PrefixCache.NONE,
        prices=None,
        enabled=True,
        endpoint=f"http://127.0.0.1:{port}/v1",
    )


def _call(*, stream: bool) -> Call:
    document: dict[str, Any] = {"messages": [{"role": "user", "content": "Summarise the attached invoices. " * 12}]}
    request = ModelRequest(
        document=document,
        stream=stream,
        include_usage=False,
        output_tokens_max=None,
        choices=1,
        tool_names=(),
        output_schema=None,
        model=None,
        size_bytes=480,
    )
    return Call(request=request, output_tokens_max=256, reasoning_budget_tokens=None, timeout_s=60.0)


async def _measure(port: int, calls: int) -> dict[str, float]:
    outbound = Outbound(parse_networks(["127.0.0.0/8"]))
    figures = {}
    try:
        for name, model, stream in (
            ("complete", "mock", False),
            ("stream", f"mock-stream-{_CHUNKS}", True),
            ("paced_stream", f"mock-stream-{_CHUNKS}-interval-2", True),
        ):
            capability = _capability(port, model)
            place = parse_place(capability.endpoint or "")
            provider = OpenAiProvider(capability, await outbound.open(place, Boundary.PRIVATE), "k", outbound)
            call = _call(stream=stream)
            rounds = calls if not stream else max(_AT_ONCE, calls // 20)
            await _many(provider, call, max(_AT_ONCE, rounds // 10))
            before = time.process_time()
            chunks = await _many(provider, call, rounds)
            spent_us = (time.process_time() - before) * 1e6
            figures[f"{name}_us"] = round(spent_us / rounds, 1)
            if stream:
                figures[f"{name}_us_per_chunk"] = round(spent_us / chunks, 2)
            await provider.close()
    finally:
        await outbound.close()
    return figures


async def _many(provider: OpenAiProvider, call: Call, rounds: int) -> int:
    """Chunks received."""
    left = iter(range(rounds))
    received = 0

    async def worker() -> None:
        nonlocal received
        for _ in left:
            if not call.request.stream:
                await provider.complete(call)
                continue
            async for _ in provider.stream(call):
                received += 1

    await asyncio.gather(*(worker() for _ in range(_AT_ONCE)))
    return received


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    calls = parser.parse_args().calls
    mock = subprocess.Popen(
        [sys.executable, "-m", "bench.mock_upstream"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert mock.stdout is not None
        port = json.loads(mock.stdout.readline())["port"]
        print(json.dumps(uvloop.run(_measure(port, calls))))
    finally:
        mock.terminate()
        mock.wait()


if __name__ == "__main__":
    main()
