"""A vendor's stream, cut at every byte and in every framing: whole is what came to its own end, and nothing else."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from terraflow.app.runtime import SystemClock
from terraflow.contracts.capability import ProviderKind
from terraflow.contracts.script import Act
from terraflow.ports.upstream import Failure, Provider, ProviderFailure
from terraflow.providers.open import open_provider
from terraflow.providers.outbound import Outbound
from tests.providers.sample import LOOPBACK, call, capability, collect, text_of
from tests.providers.speakers import speak_anthropic, speak_openai
from tests.providers.vendor import Reply, Request, Vendor

TEXT = "Zwölf Boxkämpfer."
SPEAKERS = {ProviderKind.OPENAI: speak_openai, ProviderKind.ANTHROPIC: speak_anthropic}
MARKS = {ProviderKind.OPENAI: b"data: [DONE]\n\n", ProviderKind.ANTHROPIC: b'data: {"type": "message_stop"}\n\n'}
AT_ONCE = 8
kinds = pytest.mark.parametrize("kind", SPEAKERS)


class Recorder:
    """What a vendor would write."""

    def __init__(self) -> None:
        self.raw = b""

    def write(self, data: bytes) -> None:
        self.raw += data

    async def drain(self) -> None:
        """At once."""


async def events_of(kind: ProviderKind) -> bytes:
    """A whole stream's events, without any framing."""
    recorder: Any = Recorder()
    asked = (
        b'{"stream": true, "stream_options": {"include_usage": true}, "max_completion_tokens": 50, "max_tokens": 50}'
    )
    await SPEAKERS[kind](Act(text=TEXT, chunks=3))(
        recorder, Request(b"POST / HTTP/1.1\r\nanthropic-version: 2023-06-01", asked)
    )
    body = recorder.raw.partition(b"\r\n\r\n")[2]
    return b"".join(re.findall(rb"\r\n((?:event|data): .+?\n\n)\r\n", b"\r\n" + body, re.DOTALL))


def chunked(events: bytes) -> tuple[bytes, bytes]:
    """Head and body, an event a chunk."""
    parts = [part + b"\n\n" for part in events.split(b"\n\n")[:-1]]
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", body


def measured(events: bytes) -> tuple[bytes, bytes]:
    """With its length said before."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(events), events


def until_close(events: bytes) -> tuple[bytes, bytes]:
    """Ended by the connection's end alone."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", events


def cut(raw: bytes, *, reset: bool) -> Reply:
    """Send so much, and end the connection, in peace or by a reset."""

    async def reply(writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(raw)
        await writer.drain()
        await asyncio.sleep(0.001)
        if reset:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()

    return reply


async def told(provider: Provider) -> tuple[str, Failure | None]:
    """The text that came, and how it failed, None when it is said to be whole."""
    text = ""
    try:
        async for chunk in provider.stream(call(stream=True, output_tokens_max=50)):
            text += text_of([chunk])
    except ProviderFailure as failed:
        return text, failed.failure
    return text, None


async def tell_all(kind: ProviderKind, replies: Sequence[Reply]) -> list[tuple[str, Failure | None]]:
    """What is told of each reply, each from a vendor of its own."""
    outbound = Outbound(LOOPBACK)

    async def one(reply: Reply) -> tuple[str, Failure | None]:
        async with Vendor(reply) as vendor:
            wanted = capability(kind, endpoint=f"http://127.0.0.1:{vendor.port}")
            opened = await open_provider(wanted, "k", outbound, SystemClock())
            try:
                return await told(opened.provider)
            finally:
                await opened.provider.close()

    found = []
    for begin in range(0, len(replies), AT_ONCE):
        found += await asyncio.gather(*(one(reply) for reply in replies[begin : begin + AT_ONCE]))
    await outbound.close()
    return found


@kinds
@pytest.mark.parametrize("framed", [chunked, measured, until_close])
@pytest.mark.parametrize(("reset", "step"), [(False, 3), (True, 11)], ids=["closed", "reset"])
async def test_a_stream_that_is_cut_is_never_whole(kind: ProviderKind, framed: Any, reset: bool, step: int) -> None:
    """Where the end of the connection is that of the response, the blank line behind the mark may be left out."""
    events = await events_of(kind)
    head, body = framed(events)
    mark = MARKS[kind].rstrip() if framed is until_close else MARKS[kind]
    end = body.index(mark) + len(mark)
    places = sorted({*range(0, end, step), *(end - n for n in (1, 2, 3, len(mark)))})
    found = await tell_all(kind, [cut(head + body[:at], reset=reset) for at in places])
    for at, (text, failure) in zip(places, found, strict=True):
        assert failure is Failure.CUT_OFF, f"cut after {body[:at]!r}"
        assert TEXT.startswith(text)


@kinds
@pytest.mark.parametrize("framed", [chunked, measured, until_close])
async def test_one_that_came_to_its_own_end_is_whole(kind: ProviderKind, framed: Any) -> None:
    head, body = framed(await events_of(kind))
    mark = MARKS[kind].rstrip() if framed is until_close else MARKS[kind]
    end = body.index(mark) + len(mark)
    places = sorted({end, min(end + 1, len(body)), len(body)})
    found = await tell_all(kind, [cut(head + body[:at], reset=False) for at in places])
    assert found == [(TEXT, None)] * len(places)


@kinds
async def test_one_that_is_cut_in_its_head(kind: ProviderKind) -> None:
    head, _ = chunked(await events_of(kind))
    found = await tell_all(
        kind, [cut(head[:at], reset=reset) for at in range(0, len(head), 9) for reset in (False, True)]
    )
    assert all(text == "" and failure is Failure.CUT_OFF for text, failure in found), found


@kinds
async def test_the_whole_stream_is_as_it_should_be(kind: ProviderKind) -> None:
    outbound = Outbound(LOOPBACK)
    async with Vendor(cut(b"".join(chunked(await events_of(kind))), reset=False)) as vendor:
        wanted = capability(kind, endpoint=f"http://127.0.0.1:{vendor.port}")
        opened = await open_provider(wanted, "k", outbound, SystemClock())
        assert text_of(await collect(opened.provider, call(stream=True, output_tokens_max=50))) == TEXT
        await opened.provider.close()
    await outbound.close()
