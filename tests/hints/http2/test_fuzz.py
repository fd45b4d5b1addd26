"""Seeded rubbish: what no table of cases names. Nothing may escape, nothing may stay, and others are still served."""

from __future__ import annotations

import asyncio
import random
import struct
import time

import pytest

from terraflow.hints.http2.methods import Bidi, ClientStream, ServerStream, Unary
from tests.hints.http2.raw import ECHO, KINDS, PREFACE, Strict, call, frame, headers, message, settings

SECONDS = 1.5
"""For each kind of rubbish; the long proof of the same takes longer."""


async def wait(request, call):
    await asyncio.sleep(0)
    return request


async def count(requests, call):
    return str(len([request async for request in requests])).encode()


async def many(request, call):
    for number in range(20):
        yield bytes(number * 500)


async def back(requests, call):
    async for request in requests:
        yield request


METHODS = {
    **ECHO,
    "/t/Wait": Unary(wait),
    "/t/Count": ClientStream(count),
    "/t/Many": ServerStream(many),
    "/t/Back": Bidi(back),
}
PATHS = (*METHODS, "/t/None")
WORDS = (b"\0", b"\xff", b"\x7f", b"\x80", b"\x00\x00\x00\x05hello", bytes(9), b"\xff" * 4, PREFACE)


def sensible(draw: random.Random) -> list[bytes]:
    """Frames of a session that is mostly right: several calls, interleaved."""
    parts = [PREFACE, settings(s4=draw.choice((0, 1, 100, 65_535, 2**20)))]
    for number in range(draw.randrange(1, 12)):
        stream = 2 * number + 1
        parts.append(headers(stream, p_path=draw.choice(PATHS), grpc_timeout=draw.choice((None, "1m", "9S"))))
        body = message(draw.randbytes(draw.choice((0, 1, 50, 5000)))) * draw.randrange(1, 3)
        cut = draw.randrange(len(body) + 1)
        parts += [frame("DATA", 0, stream, body[:cut]), frame("DATA", draw.randrange(2), stream, body[cut:])]
        if draw.random() < 0.5:
            parts.append(frame("WINDOW_UPDATE", 0, draw.choice((0, stream)), struct.pack(">I", draw.choice((1, 5000)))))
        if draw.random() < 0.2:
            parts.append(frame("RST_STREAM", 0, stream, struct.pack(">I", 8)))
        if draw.random() < 0.1:
            parts.append(settings(s4=draw.choice((0, 10, 2**16)), s1=draw.choice((0, 4096))))
    return parts


def mutated(draw: random.Random) -> bytes:
    """The bytes of such a session with some changed, cut out, doubled or put in."""
    sent = bytearray(b"".join(sensible(draw)))
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(min(len(PREFACE), len(sent) - 1), len(sent))
        kind = draw.randrange(4)
        if kind == 0:
            sent[at] = draw.randrange(256)
        elif kind == 1:
            del sent[max(at, 1) : at + draw.choice((1, 4, 9, 100))]
        elif kind == 2:
            sent[at:at] = sent[at : at + draw.choice((1, 9, 60))]
        else:
            sent[at:at] = draw.choice(WORDS)
    return bytes(sent)


def shuffled(draw: random.Random) -> bytes:
    """Right frames in a wrong order, on wrong streams, with wrong flags."""
    parts = sensible(draw)[1:]
    draw.shuffle(parts)
    for at, part in enumerate(parts):
        if draw.random() < 0.2:
            parts[at] = part[:4] + bytes((draw.randrange(256),)) + struct.pack(">I", draw.randrange(14)) + part[9:]
    return PREFACE + settings() + b"".join(parts)


def invented(draw: random.Random) -> bytes:
    """Frames with heads that are right and contents that are random."""
    parts = [PREFACE, settings()]
    for _ in range(draw.randrange(1, 40)):
        kind = draw.choice((*range(len(KINDS)), draw.randrange(256)))
        length = draw.choice((0, 4, 5, 6, 8, 9, 30, 300))
        parts.append(frame(kind, draw.randrange(256), draw.choice((0, 1, 1, 3, 5, 2)), draw.randbytes(length)))
    return b"".join(parts)


@pytest.mark.parametrize("make", [mutated, shuffled, invented])
async def test_rubbish_costs_its_sender_alone(make):
    await rubbish(make, SECONDS, 7)


async def rubbish(make, seconds: float, seed: int) -> int:
    """Sessions of one kind for a while; how many."""
    draw, until, sessions = random.Random(seed), time.monotonic() + seconds, 0
    strict = Strict(METHODS)
    other, stream = strict.peer(), 1
    while time.monotonic() < until or sessions < 50:
        peer = strict.peer(b"")
        sent = make(draw)
        while sent:
            cut = draw.choice((len(sent), len(sent), draw.randrange(len(sent)) + 1))
            peer.send(sent[:cut])
            sent = sent[cut:]
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(peer.connection.streams) <= 256
        peer.frames()
        peer.connection.connection_lost(None)
        other.send(call(stream), frame("WINDOW_UPDATE", 0, 0, struct.pack(">I", 10)))
        assert other.told(other.frames()) == [f"OPEN {stream}", f"DATA {stream} 10", f"STATUS {stream} 0"]
        other.wire.out.clear()
        other._seen = 0
        stream += 2
        sessions += 1
        assert strict.faults == [], sent
    for _ in range(50):
        await asyncio.sleep(0)
    assert strict.shared.connections == {other.connection}
    assert strict.shared.assembling == 0
    other.connection.connection_lost(None)
    return sessions


async def test_one_byte_at_a_time_is_the_same_session():
    draw = random.Random(3)
    for _ in range(10):
        sent = b"".join(sensible(draw))
        strict = Strict(ECHO)
        whole, slow = strict.peer(b""), strict.peer(b"")
        whole.send(sent)
        for byte in sent:
            slow.send(bytes((byte,)))
        words = [[word for word in peer.told(peer.frames()) if word != "WINDOW_UPDATE 0"] for peer in (whole, slow)]
        assert sorted(words[0]) == sorted(words[1])
        for peer in (whole, slow):
            peer.connection.connection_lost(None)
