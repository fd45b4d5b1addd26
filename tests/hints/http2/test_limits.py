"""What a peer can make a connection do, keep or wait for: each bound, and the flood that it is there for."""

from __future__ import annotations

import asyncio
import gzip
import struct
import zlib

import pytest

from terraflow.hints.http2 import patience
from terraflow.hints.http2.limits import BUCKETS, Bucket, Rate
from terraflow.hints.http2.methods import ClientStream, Inline, ServerStream, Unary
from terraflow.hints.http2.status import Status
from tests.hints.http2.raw import ECHO, PREFACE, Strict, call, data, frame, headers, message, settings

U32 = struct.Struct(">I").pack
MIB = 1024 * 1024


async def forever(request, call):
    await asyncio.Event().wait()


async def stubborn(request, call):
    """Goes on for a while after it was cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)


async def endless(request, call):
    while True:
        yield b"x" * 1000


async def unread(requests, call):
    await asyncio.Event().wait()


METHODS = {
    **ECHO,
    "/t/Forever": Unary(forever),
    "/t/Stubborn": Unary(stubborn),
    "/t/Endless": ServerStream(endless),
    "/t/Unread": ClientStream(unread),
    "/t/Large": Inline(lambda request, _: bytes(int(request))),
}


def half(stream: int, method: str, body: bytes = b"") -> bytes:
    return headers(stream, p_path=f"/t/{method}") + data(stream, body)


async def gone(peer):
    peer.connection.connection_lost(None)
    await peer.settled()
    assert peer.connection.tasks == set()
    assert peer.connection.shared.assembling == 0


def rst(stream: int) -> bytes:
    return frame("RST_STREAM", 0, stream, U32(8))


def malformed(stream: int) -> bytes:
    return headers(stream, connection="close")


def provoked(stream: int) -> bytes:
    """A call that the peer makes the server reset."""
    return half(stream, "Forever") + frame("WINDOW_UPDATE", 0, stream, U32(0))


FLOODS = {
    "pings": ("pings", lambda number: frame("PING", 0, 0, bytes(8))),
    "settings": ("settings", lambda number: settings(s4=number % 1000)),
    "resets": ("resets", lambda number: half(2 * number + 1, "Forever") + rst(2 * number + 1)),
    "resets of what has ended": ("resets", lambda number: call(2 * number + 1) + rst(2 * number + 1)),
    "streams that the peer makes us reset": ("resets", lambda number: provoked(2 * number + 1)),
    "malformed calls": ("resets", lambda number: malformed(2 * number + 1)),
    "empty DATA": ("empties", lambda number: frame("DATA", 0, 1)),
    "unknown frames": ("unknown", lambda number: frame(77, 0, 0)),
    "PRIORITY": ("unknown", lambda number: frame("PRIORITY", 0, 1, bytes(5))),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_the_connection_after_its_burst(name):
    bucket, make = FLOODS[name]
    strict = Strict(METHODS)
    peer = strict.peer()
    peer.send(headers(1))
    burst = BUCKETS[bucket].burst
    for number in range(1, burst - 1):
        peer.send(make(number))
        if not number % 100:
            await peer.settled(2)
    assert not any("GOAWAY" in word for word in peer.told(peer.frames()))
    for number in range(burst - 1, 3 * burst):
        peer.send(make(number))
    assert peer.told(peer.frames())[-1] == "GOAWAY ENHANCE_YOUR_CALM"
    assert strict.faults == []
    await gone(peer)


async def test_a_bucket_fills_again_with_time():
    bucket = Bucket(Rate(3, 2.0), 100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(101.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(200.0) for _ in range(4)] == [True, True, True, False]


async def test_a_continuation_flood_is_cut_at_the_bound():
    peer = Strict(METHODS, header_block_bytes_max=4096).peer()
    peer.send(frame("HEADERS", 0, 1))
    peer.send(frame("CONTINUATION", 0, 1, bytes(100)) * 40)
    assert peer.told(peer.frames()) == []
    peer.send(frame("CONTINUATION", 0, 1, bytes(100)))
    assert peer.told(peer.frames()) == ["GOAWAY ENHANCE_YOUR_CALM"]
    await gone(peer)


async def test_empty_continuations_are_an_empty_flood():
    peer = Strict(METHODS).peer()
    peer.send(frame("HEADERS", 0, 1), frame("CONTINUATION", 0, 1) * 300)
    assert peer.told(peer.frames()) == ["GOAWAY ENHANCE_YOUR_CALM"]
    await gone(peer)


async def test_calls_above_the_streams_are_refused_and_others_go_on():
    peer = Strict(METHODS, streams_max=3).peer()
    peer.send(*(half(stream, "Forever") for stream in (1, 3, 5, 7)))
    assert peer.told(peer.frames()) == ["RST 7 REFUSED_STREAM"]
    peer.send(rst(1))
    await peer.settled()
    peer.send(call(9))
    assert peer.told(peer.frames()) == ["OPEN 9", "DATA 9 10", "STATUS 9 0"]
    await gone(peer)


async def test_calls_that_were_reset_count_while_they_clean_up():
    peer = Strict(METHODS, streams_max=3).peer()
    for stream in (1, 3, 5):
        peer.send(half(stream, "Stubborn"))
    await peer.settled()
    peer.send(rst(1), rst(3), rst(5), call(7))
    assert peer.told(peer.frames()) == ["RST 7 REFUSED_STREAM"]
    await asyncio.sleep(0.1)
    peer.send(call(9))
    assert peer.told(peer.frames()) == ["OPEN 9", "DATA 9 10", "STATUS 9 0"]
    assert peer.connection.orphans == 0
    await gone(peer)


async def test_metadata_above_its_bound_is_the_calls_fault_alone():
    peer = Strict(METHODS, metadata_bytes_max=1000).peer()
    peer.send(headers(1, True, big="x" * 1200), call(3))
    assert peer.told(peer.frames()) == ["STATUS 1 8", "OPEN 3", "DATA 3 10", "STATUS 3 0"]
    await gone(peer)


async def test_more_than_a_streams_window():
    peer = Strict(METHODS, stream_window_bytes=65_535).peer()
    peer.send(headers(1, p_path="/t/Unread"))
    body = message(bytes(1019))
    for _ in range(63):
        peer.send(frame("DATA", 0, 1, body))
    assert peer.told(peer.frames()) == []
    peer.send(frame("DATA", 0, 1, body) * 2)
    assert peer.told(peer.frames())[-1] == "RST 1 FLOW_CONTROL_ERROR"
    await gone(peer)


async def test_unread_messages_are_bounded_over_all_streams_and_all_connections():
    strict = Strict(METHODS, assembling_bytes_max=100_000, server_assembling_bytes_max=150_000)
    first, second = strict.peer(), strict.peer()
    part = struct.pack(">BI", 0, MIB) + bytes(9_995)
    for stream in range(1, 21, 2):
        first.send(headers(stream), frame("DATA", 0, stream, part))
    assert first.told(first.frames()) == []
    first.send(headers(21), frame("DATA", 0, 21, part))
    assert first.told(first.frames()) == ["STATUS 21 8", "RST 21 NO_ERROR"]
    for stream in range(1, 13, 2):
        second.send(headers(stream), frame("DATA", 0, stream, part))
    assert second.told(second.frames()) == ["STATUS 11 8", "RST 11 NO_ERROR"]
    await gone_both(first, second)
    assert strict.shared.assembling == 0


async def gone_both(*peers):
    for peer in peers:
        peer.connection.connection_lost(None)
        await peer.settled()


@pytest.mark.parametrize("encoding,pack", [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_what_unfolds_beyond_the_bound_is_refused(encoding, pack):
    peer = Strict(METHODS).peer()
    for stream, size, status in ((1, 4 * MIB, 0), (3, 4 * MIB + 1, 8), (5, 64 * MIB, 8)):
        packed = message(pack(bytes(size)), 1)
        peer.send(settings(s4=2**30), frame("WINDOW_UPDATE", 0, 0, U32(2**24)), headers(stream, grpc_encoding=encoding))
        pieces = [packed[at : at + 16_384] for at in range(0, len(packed), 16_384)]
        for piece in pieces:
            peer.send(frame("DATA", int(piece is pieces[-1]), stream, piece))
        assert peer.told(peer.frames())[-1] == f"STATUS {stream} {status}"
    await gone(peer)


async def test_a_reply_waits_for_both_windows_and_ends_when_they_open():
    peer = Strict(METHODS).peer(PREFACE + settings(s4=10))
    peer.send(half(1, "Large", b"100"), half(3, "Large", b"20"))
    assert peer.told(peer.frames()) == ["OPEN 1", "DATA 1 10", "OPEN 3", "DATA 3 10"]
    peer.send(frame("WINDOW_UPDATE", 0, 3, U32(100)))
    assert peer.told(peer.frames()) == ["DATA 3 15", "STATUS 3 0"]
    peer.send(settings(s4=0))
    peer.send(frame("WINDOW_UPDATE", 0, 1, U32(10)))
    assert peer.told(peer.frames()) == ["SETTINGS ACK"]
    peer.send(settings(s4=95))
    assert peer.told(peer.frames()) == ["DATA 1 95", "STATUS 1 0", "SETTINGS ACK"]
    await gone(peer)


async def test_a_connections_window_is_shared_in_turns():
    peer = Strict(METHODS).peer(PREFACE + settings(s4=2**20))
    peer.send(half(1, "Large", b"100000"), half(3, "Large", b"50000"), half(5, "Large", b"10"))
    peer.frames()
    peer.send(frame("WINDOW_UPDATE", 0, 0, U32(50_000)))
    streams = [one.stream for one in peer.frames() if one.kind == "DATA"]
    assert set(streams) == {1, 3, 5}
    assert streams[:3] == [1, 3, 5]
    await gone(peer)


async def test_a_stream_of_replies_waits_for_its_reader():
    peer = Strict(METHODS).peer()
    peer.send(half(1, "Endless"))
    frames = await peer.settled(50)
    assert sum(len(one.payload) for one in frames if one.kind == "DATA") == 65_535
    assert await peer.settled(50) == []
    peer.send(frame("WINDOW_UPDATE", 0, 0, U32(5000)), frame("WINDOW_UPDATE", 0, 1, U32(5000)))
    frames = await peer.settled(50)
    assert sum(len(one.payload) for one in frames if one.kind == "DATA") == 5000
    await gone(peer)


async def test_nothing_is_read_while_nothing_can_be_written():
    peer = Strict(METHODS).peer(PREFACE + settings(s4=2**24))
    peer.send(frame("WINDOW_UPDATE", 0, 0, U32(2**24)), half(1, "Endless"))
    peer.connection.pause_writing()
    assert not peer.wire.reading
    await peer.settled(50)
    kept = len(peer.wire.out)
    await peer.settled(50)
    assert len(peer.wire.out) == kept
    peer.connection.resume_writing()
    assert peer.wire.reading
    await peer.settled(5)
    assert len(peer.wire.out) > kept
    await gone(peer)


@pytest.mark.parametrize("body,most", [(b"", 64), (gzip.compress(bytes(MIB)), 1)])
async def test_a_handler_that_never_waits_reads_in_turns(body, most):
    read = 0

    async def greedy(requests, call):
        nonlocal read
        async for _ in requests:
            read += 1
        return b""

    peer = Strict({"/t/Greedy": ClientStream(greedy)}).peer()
    sent = message(body, 1 if body else 0) * (10 if body else 3_000)
    peer.send(headers(1, p_path="/t/Greedy", grpc_encoding="gzip"))
    pieces = [sent[at : at + 16_384] for at in range(0, len(sent), 16_384)]
    peer.send(*(frame("DATA", 0, 1, piece) for piece in pieces))
    total, steps = (10 if body else 3_000), []
    while read < total:
        before = read
        await asyncio.sleep(0)
        steps.append(read - before)
    assert max(steps) == most
    await gone(peer)


async def test_a_turn_ends_and_goes_on():
    peer = Strict(METHODS, turn_s=0.0).peer(PREFACE + settings())
    peer.send(*(call(stream) for stream in range(1, 41, 2)))
    assert not peer.wire.reading
    for _ in range(100):
        await asyncio.sleep(0)
    assert [word for word in peer.told(peer.frames()) if word.startswith("STATUS")] == [
        f"STATUS {stream} 0" for stream in range(1, 41, 2)
    ]
    assert peer.wire.reading
    await gone(peer)


# The greeting (None: a whole one), what follows, when it is looked at, what is told two seconds before, and what then.
LATE = {
    "no SETTINGS": (b"", PREFACE, 11.0, [], ["GOAWAY SETTINGS_TIMEOUT"]),
    "nothing at all": (b"", b"", 11.0, [], ["GOAWAY SETTINGS_TIMEOUT"]),
    "a block without its end": (None, frame("HEADERS", 0, 1), 61.0, [], ["GOAWAY ENHANCE_YOUR_CALM"]),
    "a request without its end": (None, headers(1), 61.0, [], ["STATUS 1 4", "RST 1 NO_ERROR"]),
    "a deadline before the request": (None, headers(1, grpc_timeout="2S"), 2.5, [], ["STATUS 1 4", "RST 1 NO_ERROR"]),
    "a reply that is not taken": (
        None,
        settings(s4=5) + half(1, "Large", b"9"),
        61.0,
        ["SETTINGS ACK", "OPEN 1", "DATA 1 5"],
        ["RST 1 CANCEL"],
    ),
    "a peer that says nothing": (None, half(1, "Forever"), 121.0, [], ["PING"]),
    "a connection without calls": (None, b"", 901.0, [], ["GOAWAY NO_ERROR", "PING"]),
}


@pytest.mark.parametrize("name", LATE)
async def test_what_takes_too_long_ends(name):
    greeting, sent, after, before, expected = LATE[name]
    strict = Strict(METHODS)
    peer = strict.peer(b"") if greeting == b"" else strict.peer()
    peer.send(sent)
    told = []
    for since in (after - 2.0, after):
        patience.look(peer.connection, peer.connection.now + since)
        peer.connection.outbox.flush()
        words = peer.told(peer.frames())
        told.append([word for word in words if word not in ("SETTINGS", "WINDOW_UPDATE 0")])
    assert told == [before, expected]
    await gone(peer)


async def test_a_peer_that_takes_nothing_at_all_is_cut_off():
    strict = Strict(METHODS)
    peer = strict.peer()
    peer.connection.pause_writing()
    patience.look(peer.connection, peer.connection.paused_since + 59.0)
    assert not peer.wire.closed
    patience.look(peer.connection, peer.connection.paused_since + 61.0)
    assert peer.wire.closed
    await peer.settled()


async def test_a_peer_that_does_not_answer_is_given_up_and_one_that_does_is_not():
    peer = Strict(METHODS).peer()
    peer.send(half(1, "Forever"))
    heard = peer.connection.heard_at
    patience.look(peer.connection, heard + 121.0)
    peer.send(frame("PING", 1, 0, bytes(8)))
    assert peer.connection.heard_at > heard
    patience.look(peer.connection, heard + 125.0)
    assert not peer.wire.closed
    patience.look(peer.connection, peer.connection.heard_at + 181.0)
    assert peer.wire.closed
    await peer.settled()


async def test_a_peer_that_leaves_half_a_frame_behind_is_let_go():
    peer = Strict(METHODS).peer()
    peer.send(half(1, "Forever"), frame("GOAWAY", 0, 0, bytes(8)), b"half")
    assert not peer.wire.closed
    peer.connection.fail(peer.connection.streams[1], Status.ABORTED, "")
    peer.connection.flush()
    assert peer.wire.closed
    await peer.settled()


async def test_connections_are_bounded_in_all_and_by_address():
    strict = Strict(METHODS, connections_max=3, connections_per_address_max=2)
    admitted = [strict.shared.admit(address) for address in ("a", "a", "a", "b", "c")]
    assert admitted == [True, True, False, True, False]
    assert strict.shared.tally["refused"] == 2


async def test_when_all_are_taken_the_one_that_is_idle_for_longest_makes_room():
    strict = Strict(METHODS, connections_max=3, connections_per_address_max=3)
    shared = strict.shared
    peers = [strict.peer() for _ in range(3)]
    for at, peer in enumerate(peers):
        peer.connection.quiet_since = float(at)
    peers[0].send(half(1, "Forever"))
    assert shared.admit("b") and shared.tally["displaced"] == 1
    assert [peer.connection.closing for peer in peers] == [False, True, False]
    assert shared.admit("c") and [peer.connection.closing for peer in peers] == [False, True, True]
    assert not shared.admit("d"), "one that has a call makes no room"
    assert shared.addresses == {"test": 1, "b": 1, "c": 1}
    peers[1].connection.connection_lost(None)
    assert shared.addresses == {"test": 1, "b": 1, "c": 1} and len(shared.ending) == 1


async def test_what_is_kept_of_heads_is_bounded():
    peer = Strict(METHODS).peer()
    for number in range(200):
        peer.send(call(2 * number + 1, x=str(number)))
    reader = peer.connection.reader
    assert len(reader._kept) <= 16
    assert len(reader._heads) <= 16
    await gone(peer)
