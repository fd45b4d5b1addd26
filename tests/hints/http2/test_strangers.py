"""A crowd of hostile peers over real sockets, each in its own way, while an honest client goes on being served."""

from __future__ import annotations

import asyncio
import os
import struct
import time

import grpc
import psutil

from tests.hints.http2.raw import PREFACE, call, frame, headers, message, settings
from tests.hints.http2.test_clients import running

MIB = 1024 * 1024
U32 = struct.Struct(">I").pack
EACH = 20
CALLS = 300


def opened(path: str, stream: int = 1) -> bytes:
    return headers(stream, p_path=f"/t/{path}")


def never_reads() -> bytes:
    wide = settings(s4=2**31 - 1) + frame("WINDOW_UPDATE", 0, 0, U32(2**30))
    return wide + b"".join(
        opened("Endless", stream) + frame("DATA", 1, stream, message(b"")) for stream in range(1, 41, 2)
    )


def half_messages() -> bytes:
    part = struct.pack(">BI", 0, 4 * MIB) + bytes(16_000)
    return b"".join(headers(stream) + frame("DATA", 0, stream, part) * 4 for stream in range(1, 101, 2))


def rapid_resets() -> bytes:
    streams = range(1, 6001, 2)
    return b"".join(
        opened("Forever", one) + frame("DATA", 1, one, message(b"")) + frame("RST_STREAM", 0, one, U32(8))
        for one in streams
    )


HOSTILE = {
    "silent": b"",
    "preface alone": PREFACE,
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
    "pings": PREFACE + settings() + frame("PING", 0, 0, bytes(8)) * 20_000,
    "settings": PREFACE + settings() + settings(s4=1) * 20_000,
    "resets": PREFACE + settings() + rapid_resets(),
    "an endless block": PREFACE + settings() + frame("HEADERS", 0, 1) + frame("CONTINUATION", 0, 1, bytes(9000)) * 50,
    "half messages": PREFACE + settings() + half_messages(),
    "replies that nobody reads": PREFACE + settings() + never_reads(),
    "calls without an end": PREFACE + settings() + b"".join(opened("Forever", one) for one in range(1, 2001, 2)),
    "answers that nobody reads": PREFACE + settings() + b"".join(call(one, bytes(900)) for one in range(1, 6001, 2)),
}  # fmt: skip


async def stranger(port: int, sent: bytes) -> None:
    """Sends, reads nothing, and goes when it is cut off or cancelled."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    try:
        writer.write(sent)
        await writer.drain()
        await asyncio.sleep(60)
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()


async def test_a_crowd_of_strangers_costs_an_honest_client_nothing_but_time():
    process = psutil.Process(os.getpid())
    async with running(connections_max=400, connections_per_address_max=400) as made:
        async with grpc.aio.insecure_channel(made.target) as channel:
            echo = channel.unary_unary("/t/Echo")
            assert await echo(b"first", timeout=30) == b"first"
            before = process.memory_info().rss
            crowd = [asyncio.create_task(stranger(made.port, sent)) for sent in HOSTILE.values() for _ in range(EACH)]
            slowest = 0.0
            for number in range(CALLS):
                began = time.monotonic()
                assert await echo(b"%d" % number, timeout=30) == b"%d" % number
                slowest = max(slowest, time.monotonic() - began)
                await asyncio.sleep(0.002)
            grown = process.memory_info().rss - before
            for one in crowd:
                one.cancel()
            await asyncio.gather(*crowd, return_exceptions=True)
        for _ in range(500):
            if not made.server.shared.connections:
                break
            await asyncio.sleep(0.01)
        assert not made.server.shared.connections
        tally = made.server.shared.tally
    assert made.faults == []
    assert slowest < 15
    assert grown < 300 * MIB
    assert tally["connections"] == 1 + EACH * len(HOSTILE)
    assert tally["goaway_ENHANCE_YOUR_CALM"] >= 3 * EACH
    assert tally["goaway_PROTOCOL_ERROR"] == EACH
