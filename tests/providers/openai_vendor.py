"""A vendor of OpenAI's shape for the adapter's tests: the adapter that faces it, its events and its answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from terraflow.app.runtime import SystemClock
from terraflow.contracts.capability import Dialect, ProviderKind
from terraflow.ports.upstream import Provider
from terraflow.providers.open import open_provider
from terraflow.providers.outbound import Outbound
from tests.providers.sample import LOOPBACK, capability
from tests.providers.vendor import Reply, Vendor

DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def facing(*replies: Reply, dialect: Dialect = Dialect.CURRENT) -> AsyncIterator[tuple[Provider, Vendor]]:
    vendor = await Vendor(*replies).start()
    outbound = Outbound(LOOPBACK)
    asked = capability(ProviderKind.OPENAI, endpoint=f"http://127.0.0.1:{vendor.port}/v1", dialect=dialect)
    opened = await open_provider(asked, "sk-secret", outbound, SystemClock())
    try:
        yield opened.provider, vendor
    finally:
        await opened.provider.close()
        await outbound.close()
        await vendor.stop()


def event(choices: list[dict[str, Any]], **fields: Any) -> bytes:
    return (
        b"data: "
        + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": choices, **fields}).encode()
        + b"\n\n"
    )


def piece(delta: dict[str, Any], finish: str | None = None, index: int = 0, **fields: Any) -> bytes:
    return event([{"index": index, "delta": delta, "finish_reason": finish, **fields}])


def whole(message: dict[str, Any] | None = None, finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "hi", "refusal": None} if message is None else message
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        **fields,
    }


HELLO = [piece({"role": "assistant", "content": ""}), piece({"content": "hi"})]
WHOLE = b"".join([*HELLO, piece({}, "stop"), DONE])
