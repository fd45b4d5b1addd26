"""What each wrong frame costs its sender, by tables and families of cases; and that nobody else pays."""

from __future__ import annotations

import asyncio
import itertools
import struct
from urllib.parse import unquote

import hpack
import pytest

from terraflow.hints.http2.methods import Inline, Unary
from terraflow.hints.http2.status import GrpcError, Status
from tests.hints.http2.raw import ECHO, PREFACE, REQUEST, Strict, block, call, data, frame, headers, message, settings

U32 = struct.Struct(">I").pack
ENDED = headers(1) + data(1)
HALF = headers(1, p_path="/t/Half")

CASES = {
    # the preface and the first frame
    "preface of HTTP/1": (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ["GOAWAY PROTOCOL_ERROR"]),
    "preface with one byte wrong": (b"", PREFACE[:-1] + b"x", ["GOAWAY PROTOCOL_ERROR"]),
    "first frame is PING": (b"", PREFACE + frame("PING", 0, 0, bytes(8)), ["GOAWAY PROTOCOL_ERROR"]),
    "first frame is an ACK": (b"", PREFACE + frame("SETTINGS", 1), ["GOAWAY PROTOCOL_ERROR"]),
    "first frame is a call": (b"", PREFACE + headers(), ["GOAWAY PROTOCOL_ERROR"]),
    # sizes
    "frame above the maximum": (None, frame("DATA", 0, 1, bytes(16_385)), ["GOAWAY FRAME_SIZE_ERROR"]),
    "unknown frame above the maximum": (None, frame(99, 0, 0, bytes(16_385)), ["GOAWAY FRAME_SIZE_ERROR"]),
    "unknown frame": (None, frame(99, 255, 7, b"what") + call(), ["OPEN 1", "DATA 1 10", "STATUS 1 0"]),
    "reserved bit of the stream": (None, frame("PING", 0, 1 << 31, bytes(8)), ["PING ACK"]),
    # streams
    "call on an even stream": (None, headers(2), ["GOAWAY PROTOCOL_ERROR"]),
    "call on stream 0": (None, headers(0), ["GOAWAY PROTOCOL_ERROR"]),
    "call on a stream below the last": (call(5), headers(3), ["GOAWAY STREAM_CLOSED"]),
    "DATA on stream 0": (None, frame("DATA", 0, 0), ["GOAWAY PROTOCOL_ERROR"]),
    "DATA on an idle stream": (None, data(1), ["GOAWAY PROTOCOL_ERROR"]),
    "DATA on an even stream": (call(3), data(2), ["GOAWAY PROTOCOL_ERROR"]),
    "DATA after the call": (ENDED, data(1), ["RST 1 STREAM_CLOSED"]),
    "DATA after half-close": (HALF + data(1), data(1), ["RST 1 STREAM_CLOSED"]),
    "HEADERS after the call": (ENDED, headers(1), ["GOAWAY STREAM_CLOSED"]),
    "trailers after half-close": (HALF + data(1), frame("HEADERS", 5, 1, block({"a": "b"})), ["RST 1 STREAM_CLOSED"]),
    "trailers that do not end": (headers(1), frame("HEADERS", 4, 1, block({"a": "b"})), ["RST 1 PROTOCOL_ERROR"]),
    "trailers with a path": (headers(1), frame("HEADERS", 5, 1, block({":path": "/"})), ["RST 1 PROTOCOL_ERROR"]),
    "trailers end the call": (
        headers(1) + data(1, end=False),
        frame("HEADERS", 5, 1, block({"a": "b"})),
        ["OPEN 1", "DATA 1 10", "STATUS 1 0"],
    ),
    "PUSH_PROMISE": (None, frame("PUSH_PROMISE", 4, 1, U32(2)), ["GOAWAY PROTOCOL_ERROR"]),
    # padding and priority
    "padding as long as the frame": (headers(1), frame("DATA", 8, 1, b"\x05hello"[:5]), ["GOAWAY PROTOCOL_ERROR"]),
    "padding without a length": (headers(1), frame("DATA", 8, 1), ["GOAWAY PROTOCOL_ERROR"]),
    "padded HEADERS too long": (None, frame("HEADERS", 0xC, 1, b"\xff" + block({"a": "b"})), ["GOAWAY PROTOCOL_ERROR"]),
    "HEADERS too short for priority": (None, frame("HEADERS", 0x24, 1, b"1234"), ["GOAWAY FRAME_SIZE_ERROR"]),
    "padded DATA": (
        headers(1),
        frame("DATA", 9, 1, b"\x03" + message(b"hi") + bytes(3)),
        ["OPEN 1", "DATA 1 7", "STATUS 1 0"],
    ),
    "PRIORITY on stream 0": (None, frame("PRIORITY", 0, 0, bytes(5)), ["GOAWAY PROTOCOL_ERROR"]),
    "PRIORITY is ignored": (None, frame("PRIORITY", 0, 3, bytes(5)), []),
    # RST_STREAM
    "RST_STREAM on stream 0": (None, frame("RST_STREAM", 0, 0, U32(8)), ["GOAWAY PROTOCOL_ERROR"]),
    "RST_STREAM on an even stream": (call(3), frame("RST_STREAM", 0, 2, U32(8)), ["GOAWAY PROTOCOL_ERROR"]),
    "RST_STREAM on an idle stream": (
        None,
        frame("RST_STREAM", 0, 1, U32(8)) + call(3),
        ["OPEN 3", "DATA 3 10", "STATUS 3 0"],
    ),
    "RST_STREAM after the call": (ENDED, frame("RST_STREAM", 0, 1, U32(8)), []),
    "RST_STREAM of a call": (headers(1), frame("RST_STREAM", 0, 1, U32(8)), []),
    # CONTINUATION
    "CONTINUATION of nothing": (None, frame("CONTINUATION", 4, 1), ["GOAWAY PROTOCOL_ERROR"]),
    "CONTINUATION on another stream": (
        None,
        frame("HEADERS", 0, 1) + frame("CONTINUATION", 4, 3),
        ["GOAWAY PROTOCOL_ERROR"],
    ),
    "a frame inside a block": (None, frame("HEADERS", 0, 1) + frame("PING", 0, 0, bytes(8)), ["GOAWAY PROTOCOL_ERROR"]),
    # WINDOW_UPDATE
    "window of nothing": (None, frame("WINDOW_UPDATE", 0, 0, U32(0)), ["GOAWAY PROTOCOL_ERROR"]),
    "stream's window of nothing": (headers(1), frame("WINDOW_UPDATE", 0, 1, U32(0)), ["RST 1 PROTOCOL_ERROR"]),
    "window too large": (None, frame("WINDOW_UPDATE", 0, 0, U32(2**31 - 1)), ["GOAWAY FLOW_CONTROL_ERROR"]),
    "stream's window too large": (
        headers(1),
        frame("WINDOW_UPDATE", 0, 1, U32(2**31 - 1)),
        ["RST 1 FLOW_CONTROL_ERROR"],
    ),
    "window of an idle stream": (None, frame("WINDOW_UPDATE", 0, 1, U32(1)), ["GOAWAY PROTOCOL_ERROR"]),
    "window of a stream that ended": (ENDED, frame("WINDOW_UPDATE", 0, 1, U32(1)), []),
    # SETTINGS, PING, GOAWAY
    "SETTINGS on a stream": (None, frame("SETTINGS", 0, 1), ["GOAWAY PROTOCOL_ERROR"]),
    "SETTINGS ACK with a payload": (None, frame("SETTINGS", 1, 0, bytes(6)), ["GOAWAY FRAME_SIZE_ERROR"]),
    "unknown setting": (None, settings(s99=7), ["SETTINGS ACK"]),
    "push neither on nor off": (None, settings(s2=2), ["GOAWAY PROTOCOL_ERROR"]),
    "initial window too large": (None, settings(s4=2**31), ["GOAWAY FLOW_CONTROL_ERROR"]),
    "initial window makes a stream's too large": (
        headers(1) + frame("WINDOW_UPDATE", 0, 1, U32(1000)),
        settings(s4=2**31 - 1),
        ["GOAWAY FLOW_CONTROL_ERROR"],
    ),
    "frame size too small": (None, settings(s5=16_383), ["GOAWAY PROTOCOL_ERROR"]),
    "frame size too large": (None, settings(s5=2**24), ["GOAWAY PROTOCOL_ERROR"]),
    "PING on a stream": (None, frame("PING", 0, 1, bytes(8)), ["GOAWAY PROTOCOL_ERROR"]),
    "PING ACK nobody asked for": (None, frame("PING", 1, 0, bytes(8)), []),
    "GOAWAY on a stream": (None, frame("GOAWAY", 0, 1, bytes(8)), ["GOAWAY PROTOCOL_ERROR"]),
    # header compression
    "index of nothing": (None, frame("HEADERS", 4, 1, b"\x80"), ["GOAWAY COMPRESSION_ERROR"]),
    "index beyond the table": (None, frame("HEADERS", 4, 1, b"\xff\x80\x01"), ["GOAWAY COMPRESSION_ERROR"]),
    "integer without an end": (None, frame("HEADERS", 4, 1, b"\xff" * 20), ["GOAWAY COMPRESSION_ERROR"]),
    "literal cut short": (None, frame("HEADERS", 4, 1, b"\x00\x05ab"), ["GOAWAY COMPRESSION_ERROR"]),
    "wrong Huffman code": (None, frame("HEADERS", 4, 1, b"\x00\x81\xff\x01a"), ["GOAWAY COMPRESSION_ERROR"]),
    "table larger than allowed": (None, frame("HEADERS", 4, 1, b"\x3f\xff\xff\x03"), ["GOAWAY COMPRESSION_ERROR"]),
    "a list that unfolds": (
        None,
        frame("HEADERS", 4, 1, b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000 + b"\xbe" * 2000),
        ["GOAWAY COMPRESSION_ERROR"],
    ),
    # a request's header list
    "no fields": (None, frame("HEADERS", 4, 1), ["RST 1 PROTOCOL_ERROR"]),
    "no method": (None, headers(p_method=None), ["RST 1 PROTOCOL_ERROR"]),
    "no scheme": (None, headers(p_scheme=None), ["RST 1 PROTOCOL_ERROR"]),
    "no path": (None, headers(p_path=None), ["RST 1 PROTOCOL_ERROR"]),
    "empty path": (None, headers(p_path=""), ["RST 1 PROTOCOL_ERROR"]),
    "unknown pseudo-header": (None, headers(p_status="200"), ["RST 1 PROTOCOL_ERROR"]),
    "pseudo-header twice": (
        None,
        frame("HEADERS", 4, 1, block([(":method", "POST"), (":method", "POST")])),
        ["RST 1 PROTOCOL_ERROR"],
    ),
    "pseudo-header after a field": (
        None,
        frame("HEADERS", 4, 1, block([("te", "trailers"), (":method", "POST")])),
        ["RST 1 PROTOCOL_ERROR"],
    ),
    "pseudo-header after the deadline": (
        None,
        frame(
            "HEADERS",
            4,
            1,
            block(
                [
                    ("grpc-timeout", "1S"),
                    (":method", "POST"),
                    (":scheme", "http"),
                    (":path", "/t/Echo"),
                    ("content-type", "application/grpc"),
                ]
            ),
        ),
        ["RST 1 PROTOCOL_ERROR"],
    ),
    "connection": (None, headers(connection="close"), ["RST 1 PROTOCOL_ERROR"]),
    "te of something else": (None, headers(te="gzip"), ["RST 1 PROTOCOL_ERROR"]),
    "upper-case name": (None, frame("HEADERS", 4, 1, b"\x00\x01A\x01b"), ["RST 1 PROTOCOL_ERROR"]),
    "empty name": (None, frame("HEADERS", 4, 1, b"\x00\x00\x01b"), ["RST 1 PROTOCOL_ERROR"]),
    "line break in a value": (None, headers(a="b\r\nc"), ["RST 1 PROTOCOL_ERROR"]),
    "NUL in a value": (None, headers(a="b\0c"), ["RST 1 PROTOCOL_ERROR"]),
    "value that begins with a space": (None, headers(a=" b"), ["RST 1 PROTOCOL_ERROR"]),
    "content-length of letters": (None, headers(content_length="many"), ["RST 1 PROTOCOL_ERROR"]),
    "content-length too small": (None, call(content_length="9"), ["RST 1 PROTOCOL_ERROR"]),
    "content-length too large": (None, call(content_length="11"), ["RST 1 PROTOCOL_ERROR"]),
    "content-length that is right": (None, call(content_length="10"), ["OPEN 1", "DATA 1 10", "STATUS 1 0"]),
    # gRPC
    "GET": (None, headers(1, True, p_method="GET"), ["STATUS 1 13 http 405"]),
    "another content type": (None, headers(1, True, content_type="text/plain"), ["STATUS 1 2 http 415"]),
    "a content type that only begins so": (
        None,
        headers(1, True, content_type="application/grpc-web"),
        ["STATUS 1 2 http 415"],
    ),
    "no content type": (None, headers(1, True, content_type=None), ["STATUS 1 2 http 415"]),
    "content type with proto": (
        None,
        call(content_type="application/grpc+proto"),
        ["OPEN 1", "DATA 1 10", "STATUS 1 0"],
    ),
    "unknown path": (None, headers(1, True, p_path="/t/None"), ["STATUS 1 12"]),
    "refused before its body": (None, headers(1, p_path="/t/None"), ["STATUS 1 12", "RST 1 NO_ERROR"]),
    "unknown compression": (None, headers(1, True, grpc_encoding="br"), ["STATUS 1 12"]),
    "timeout without a unit": (None, headers(1, True, grpc_timeout="5"), ["STATUS 1 13"]),
    "timeout of nine digits": (None, headers(1, True, grpc_timeout="123456789S"), ["STATUS 1 13"]),
    "binary metadata that is not base64": (None, headers(1, True, x_bin="a"), ["STATUS 1 13"]),
    "no message": (None, headers(1, True), ["STATUS 1 13"]),
    "message cut short": (None, headers(1) + frame("DATA", 1, 1, message(b"hello")[:-1]), ["STATUS 1 13"]),
    "two messages": (None, headers(1) + frame("DATA", 1, 1, message(b"a") * 2), ["STATUS 1 13"]),
    "unknown message flag": (
        None,
        headers(1) + frame("DATA", 0, 1, message(b"a", 2)),
        ["STATUS 1 13", "RST 1 NO_ERROR"],
    ),
    "compressed without a name": (None, headers(1) + frame("DATA", 1, 1, message(b"a", 1)), ["STATUS 1 13"]),
    "compressed wrongly": (
        None,
        headers(1, grpc_encoding="gzip") + frame("DATA", 1, 1, message(b"a", 1)),
        ["STATUS 1 13"],
    ),
    "compressed rubbish": (
        None,
        headers(1, grpc_encoding="deflate") + frame("DATA", 1, 1, message(b"what no deflate begins with", 1)),
        ["STATUS 1 13"],
    ),
    "trailers of a call that was refused": (
        headers(1, p_path="/t/None"),
        frame("HEADERS", 5, 1, block({"a": "b"})) + call(3),
        ["OPEN 3", "DATA 3 10", "STATUS 3 0"],
    ),
    "message that says it is too large": (
        None,
        headers(1) + frame("DATA", 0, 1, struct.pack(">BI", 0, 4 * 1024 * 1024 + 1)),
        ["STATUS 1 8", "RST 1 NO_ERROR"],
    ),
}  # fmt: skip


async def forever(request, _):
    await asyncio.Event().wait()


WITH_HALF = {**ECHO, "/t/Half": Unary(forever)}
"""With a method that never ends by itself, for frames on a stream that is half-closed."""


@pytest.mark.parametrize("name", CASES)
async def test_what_a_frame_costs(name):
    before, sent, expected = CASES[name]
    strict = Strict(WITH_HALF)
    other = strict.peer()
    peer = strict.peer(b"") if before == b"" else strict.peer()
    if before:
        peer.send(before)
    peer.frames()
    peer.send(sent)
    told = peer.told(await peer.settled())
    assert [word for word in told if word not in ("SETTINGS", "WINDOW_UPDATE 0")] == expected
    other.send(call())
    assert other.told(other.frames()) == ["OPEN 1", "DATA 1 10", "STATUS 1 0"]
    assert strict.faults == []
    for raw in (peer, other):
        raw.connection.connection_lost(None)
    await peer.settled()
    assert strict.shared.assembling == 0
    assert strict.shared.connections == set()


FIXED = {"PRIORITY": {5}, "RST_STREAM": {4}, "PING": {8}, "WINDOW_UPDATE": {4}, "SETTINGS": {0, 6, 12}}
LENGTHS = [(kind, length) for kind in FIXED for length in range(14) if length not in FIXED[kind]]


@pytest.mark.parametrize("kind,length", LENGTHS)
async def test_frames_of_a_wrong_length(kind, length):
    strict = Strict(WITH_HALF)
    peer = strict.peer(PREFACE + settings() + HALF)
    stream = 0 if kind in ("PING", "SETTINGS") else 1
    peer.send(frame(kind, 0, stream, bytes(length)))
    words = peer.told(peer.frames())
    assert words == [f"{'RST 1' if kind == 'PRIORITY' else 'GOAWAY'} FRAME_SIZE_ERROR"]
    peer.connection.connection_lost(None)
    await peer.settled()


async def test_every_cut_of_a_call_is_the_same_call():
    """The bytes of two calls arrive in two pieces, cut at every place."""
    sent = PREFACE + settings() + call(1) + call(3, b"other", grpc_timeout="9S")
    for cut in range(1, len(sent)):
        strict = Strict()
        peer = strict.peer(b"")
        peer.send(sent[:cut])
        peer.send(sent[cut:])
        words = [word for word in peer.told(peer.frames()) if not word.startswith(("SETTINGS", "WINDOW"))]
        assert words == ["OPEN 1", "DATA 1 10", "STATUS 1 0", "OPEN 3", "DATA 3 10", "STATUS 3 0"]
        peer.connection.connection_lost(None)


async def test_a_header_block_in_pieces_is_the_same_block():
    whole = headers(1)[9:]
    for sizes in itertools.product((0, 1, 7, 60), repeat=2):
        peer = Strict().peer()
        first, second = sizes[0], sizes[0] + sizes[1]
        peer.send(
            frame("HEADERS", 0, 1, whole[:first]),
            frame("CONTINUATION", 0, 1, whole[first:second]),
            frame("CONTINUATION", 4, 1, whole[second:]),
            data(1),
        )
        assert peer.told(peer.frames()) == ["OPEN 1", "DATA 1 10", "STATUS 1 0"]
        peer.connection.connection_lost(None)


async def test_heads_that_are_kept_by_their_block_follow_the_dynamic_table():
    """The same indexed block means another path once the table has changed."""
    peer = Strict().peer()
    encoder = hpack.Encoder()
    fields, other = {**REQUEST}, {**REQUEST, ":path": "/t/None"}
    first, again = encoder.encode(fields), encoder.encode(fields)
    changed, changed_again = encoder.encode(other), encoder.encode(other)
    back = encoder.encode(fields)
    words = []
    for number, one in enumerate((first, again, again, changed, changed_again, back)):
        stream = 2 * number + 1
        peer.send(frame("HEADERS", 4, stream, one), data(stream))
        words += [word for word in peer.told(peer.frames()) if word.startswith("STATUS")]
    assert words == ["STATUS 1 0", "STATUS 3 0", "STATUS 5 0", "STATUS 7 12", "STATUS 9 12", "STATUS 11 0"]
    peer.connection.connection_lost(None)


async def test_heads_that_are_kept_follow_a_table_that_trailers_change():
    """The newest entry of the table is the path, until trailers have put another before it."""
    peer = Strict(WITH_HALF).peer()
    fixed = block([(name, value) for name, value in REQUEST.items() if name.startswith(":") and name != ":path"])
    rest = block([("content-type", "application/grpc")])
    newest = b"\xbe"
    peer.send(frame("HEADERS", 4, 1, fixed + b"\x44\x07/t/Half" + rest), data(1))
    peer.send(frame("HEADERS", 4, 3, fixed + newest + rest))
    peer.send(frame("HEADERS", 4, 5, fixed + newest + rest))
    assert peer.told(peer.frames()) == []
    peer.send(frame("HEADERS", 5, 3, b"\x40\x01a\x01b"))
    peer.send(frame("HEADERS", 4, 7, fixed + newest + rest))
    assert peer.told(peer.frames()) == ["STATUS 3 13", "RST 7 PROTOCOL_ERROR"]
    peer.connection.connection_lost(None)
    await peer.settled()


async def test_what_breaks_the_server_itself_is_told_and_ends_one_connection():
    class Torn(dict):
        """A table that cannot be read."""

        def get(self, key, default=None):
            raise RuntimeError("planted")

    strict = Strict(Torn())
    peer, other = strict.peer(), strict.peer()
    peer.send(call())
    assert peer.told(peer.frames()) == ["GOAWAY INTERNAL_ERROR"]
    assert [(where, str(what)) for where, what in strict.faults] == [("connection", "planted")]
    other.send(frame("PING", 0, 0, bytes(8)))
    assert other.told(other.frames()) == ["PING ACK"]
    for raw in (peer, other):
        raw.connection.connection_lost(None)


async def test_a_call_after_the_last_word_is_passed_over():
    peer = Strict(WITH_HALF).peer()
    peer.send(HALF)
    peer.connection.drain()
    ping = peer.frames()[-1]
    assert ping.kind == "PING"
    peer.send(frame("PING", 1, 0, ping.payload))
    assert peer.told(peer.frames()) == ["GOAWAY NO_ERROR"]
    peer.send(call(3), call(5))
    assert peer.told(peer.frames()) == []
    assert not peer.wire.closed
    peer.send(data(1), frame("RST_STREAM", 0, 1, U32(8)))
    assert peer.wire.closed
    await peer.settled()


@pytest.mark.parametrize("size", [1, 126, 127, 128, 300, 1_024])
async def test_a_status_message_of_every_length_is_whole(size):
    text = ("a%" * size)[:size]

    def refused(request, _):
        raise GrpcError(Status.ABORTED, text)

    peer = Strict({"/t/Echo": Inline(refused)}).peer()
    peer.send(call())
    (end,) = peer.frames()
    told = dict(peer.decoder.decode(end.payload))
    assert (told["grpc-status"], unquote(told["grpc-message"])) == ("10", text)
    peer.connection.connection_lost(None)


async def test_a_table_size_is_answered_before_the_next_block():
    peer = Strict().peer()
    peer.send(settings(s1=0), call())
    opened = [one for one in peer.frames() if one.kind == "HEADERS"]
    assert [one.payload[:1] == b"\x20" for one in opened] == [True, False]
    peer.connection.connection_lost(None)
