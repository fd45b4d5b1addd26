"""Capabilities and calls for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from terraflow.contracts.capability import (
    Boundary,
    Capability,
    DataTerms,
    Dialect,
    Lifecycle,
    PrefixCache,
    ProviderKind,
)
from terraflow.contracts.script import Act, Script
from terraflow.ports.upstream import Call, Chunk, ModelRequest, Provider
from terraflow.providers.endpoint import parse_networks
from terraflow.providers.outbound import Outbound

LOOPBACK = parse_networks(["127.0.0.0/8", "::1/128"])


def capability(
    kind: ProviderKind,
    *,
    endpoint: str | None = None,
    dialect: Dialect = Dialect.CURRENT,
    boundary: Boundary = Boundary.PRIVATE,
    acts: tuple[Act, ...] | None = None,
    secret: str | None = None,
    name: str = "sample",
) -> Capability:
    return Capability(
        id=name,
        provider=kind,
        model="model-1",
        family="sample",
        tier="standard",
        boundary=boundary,
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
        endpoint=endpoint,
        secret=secret,
        script=None if acts is None else Script(acts=acts),
        dialect=dialect,
    )


def call(
    *,
    stream: bool = False,
    messages: list[dict[str, Any]] | None = None,
    output_tokens_max: int = 1_000,
    timeout_s: float = 5.0,
    choices: int = 1,
    schema: dict[str, Any] | None = None,
    reasoning_budget_tokens: int | None = None,
    **fields: Any,
) -> Call:
    document = {"messages": messages or [{"role": "user", "content": "Say hello."}], **fields}
    if choices != 1:
        document["n"] = choices
    return Call(
        request=ModelRequest(
            document=document,
            stream=stream,
            include_usage=True,
            output_tokens_max=None,
            choices=choices,
            tool_names=(),
            output_schema=schema,
            model=None,
            size_bytes=100,
        ),
        output_tokens_max=output_tokens_max,
        reasoning_budget_tokens=reasoning_budget_tokens,
        timeout_s=timeout_s,
    )


@asynccontextmanager
async def reaching(**options: Any) -> AsyncIterator[Outbound]:
    """Outgoing connections, whose private network is loopback."""
    outbound = Outbound(LOOPBACK, **options)
    try:
        yield outbound
    finally:
        await outbound.close()


async def collect(provider: Provider, asked: Call) -> list[Chunk]:
    return [chunk async for chunk in provider.stream(asked)]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk.choices)


def finishes(chunks: list[Chunk]) -> list[str]:
    return [c["finish_reason"] for chunk in chunks for c in chunk.choices if c["finish_reason"] is not None]


def tool_calls_of(chunks: list[Chunk]) -> dict[int, dict[str, str]]:
    """Tool calls put together as clients do: by index, arguments joined."""
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            for delta in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(delta["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += delta.get("id") or ""
                call["name"] += delta.get("function", {}).get("name") or ""
                call["arguments"] += delta.get("function", {}).get("arguments") or ""
    return calls
