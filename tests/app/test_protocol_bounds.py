"""What a caller's connection is bounded by: how large bodies and heads are, how slowly they come, and how many
connections there may be."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from terraflow.app import protocol, wire
from terraflow.gateway.http.head import HEAD_BYTES_MAX, HEADERS_MAX
from tests.app.spoken import HOST, chunked, get, post, refused
from tests.harness.caller import until
from tests.harness.edge import BODY_BYTES_MAX, Connection, Edge

# Bodies.


def test_a_body_over_its_bound_is_refused_and_the_connection_closed(edge: Edge, caller: Connection) -> None:
    refused(caller.ask(post(b"x" * (BODY_BYTES_MAX + 1))), "body")
    assert caller.closed()
    assert edge.answerer.failed == ["BodyTooLarge"]


def test_a_declared_length_over_the_bound_is_refused_before_the_body(edge: Edge, caller: Connection) -> None:
    refused(caller.ask(get("/a", "Content-Length: 99999999999", "Expect: 100-continue", method="POST")), "body")
    assert caller.closed()


def test_chunks_over_the_bound_are_refused_while_they_are_read(edge: Edge, caller: Connection) -> None:
    caller.send(get("/a", "Transfer-Encoding: chunked", method="POST"))
    for _ in range(10):
        caller.send(b"%x\r\n%b\r\n" % (50_000, b"x" * 50_000))
    refused(caller.hear(), "body")
    assert caller.closed()


@pytest.mark.parametrize("size", [0, 1, wire.UNREAD_MAX, wire.UNREAD_MAX + 1, BODY_BYTES_MAX])
def test_a_body_up_to_its_bound_arrives(size: int, caller: Connection) -> None:
    for raw in (post(b"x" * size), chunked(*(b"x" * 1000 for _ in range(size // 1000)), b"y")):
        heard = caller.ask(raw[:400] + raw[400:]) if size < BODY_BYTES_MAX else caller.ask(post(b"x" * size))
        assert heard.status == 200
    assert len(caller.ask(post(b"x" * size)).json["body"]) == size


def test_a_body_that_nobody_reads_yet_stays_in_the_socket(edge: Edge, caller: Connection) -> None:
    caller.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        caller.send(get("/held", "Content-Length: 99999999", method="POST"), b"x" * 64_000_000)
    [connection] = edge.state.connections
    assert connection.flow.read_paused
    edge.release()


def test_a_slow_body_is_refused(edge: Edge, caller: Connection) -> None:
    begun = time.monotonic()
    caller.send(get("/a", "Content-Length: 100", method="POST"), b"x")
    while time.monotonic() - begun < 0.4:
        caller.send(b"x")
        time.sleep(0.05)
    refused(caller.hear(), "body")
    assert edge.answerer.failed == ["BodyTooSlow"]
    assert caller.closed()


def test_a_body_that_breaks_off_is_no_request(edge: Edge, caller: Connection) -> None:
    caller.send(get("/a", "Content-Length: 100", method="POST"), b"x")
    until(lambda: edge.answerer.seen)
    caller.socket.close()
    until(lambda: edge.answerer.failed)
    assert edge.answerer.failed == ["Disconnected"]


@pytest.mark.parametrize(
    "rest",
    [b"zz\r\nhello\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"5\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nX y\r\n\r\n"],
)
def test_broken_chunks_are_refused_by_their_own_request(rest: bytes, edge: Edge, caller: Connection) -> None:
    caller.send(get("/a", "Transfer-Encoding: chunked", method="POST"))
    until(lambda: edge.answerer.seen)
    refused(caller.ask(rest, get("/smuggled")), "body")
    assert caller.closed()
    assert edge.answerer.seen == ["/a"]


def test_the_caller_is_told_to_go_on_only_when_the_body_is_wanted(caller: Connection) -> None:
    assert caller.ask(get("/a", "Content-Length: 5", "Expect: 100-continue", method="POST")).status == 100
    assert caller.ask(b"hello").json["body"] == "hello"
    heard = caller.ask(get("/unread", "Content-Length: 5", "Expect: 100-continue", method="POST"))
    assert (heard.status, heard.headers["connection"]) == (401, "close")
    assert caller.closed()


# Heads.


def test_a_slow_head_is_refused(caller: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    begun = time.monotonic()
    for byte in b"GET / HTTP/1.1\r\nHost: plane\r\nX: " + b"x" * 1000:
        caller.send(bytes((byte,)))
        time.sleep(0.02)
        if time.monotonic() - begun > 0.3:
            break
    refused(caller.hear(), "headers")
    assert caller.closed()


def test_the_next_head_has_its_own_time(edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.6)
    for _ in range(3):
        caller.send(b"GET / HTTP/1.1\r\n")
        time.sleep(0.25)
        assert caller.ask(HOST, b"\r\n").status == 200
    caller.send(get("/held"), b"GET / HTTP/1.1\r\n")
    time.sleep(0.25)
    caller.send(HOST, b"\r\n", b"GET / HTTP/1.1\r\n")
    time.sleep(0.7)
    edge.release()
    assert [caller.hear().status for _ in range(2)] == [200, 200]
    assert caller.ask(HOST, b"\r\n").status == 200


def test_an_idle_connection_is_closed() -> None:
    with Edge(keep_alive_s=1) as edge, edge.connect() as unused, edge.connect() as used, edge.connect() as dribbling:
        begun = time.monotonic()
        time.sleep(0.5)
        assert used.ask(get()).status == 200
        while time.monotonic() - begun < 0.9:
            dribbling.send(b"\r\n")
            time.sleep(0.1)
        assert unused.closed() and dribbling.closed()
        assert 0.8 < time.monotonic() - begun < 5
        assert used.closed()
        assert 1.3 < time.monotonic() - begun < 8


@pytest.mark.parametrize("lines", [(), ("Connection: close",)], ids=["kept", "closed behind it"])
def test_a_whole_answer_has_the_keep_alive_time_to_be_taken(lines: tuple[str, ...]) -> None:
    size = 20_000_000
    with Edge(keep_alive_s=2) as edge, edge.connect() as slow, edge.connect() as never:
        time.sleep(1.5)
        slow.send(get(f"/whole/{size}", *lines))
        never.send(get(f"/whole/{size}", *lines))
        # Past the instant in which the connection is first looked at.
        time.sleep(0.6)
        assert len(slow.hear().body) == size
        begun = time.monotonic()
        until(lambda: not edge.state.connections and not edge.places.open)
        assert time.monotonic() - begun < 3


def test_a_request_that_runs_keeps_its_connection() -> None:
    with Edge(keep_alive_s=1) as edge, edge.connect() as caller:
        caller.send(get("/held"))
        assert caller.silent(1.5)
        edge.release()
        assert caller.hear().status == 200


@pytest.mark.parametrize(
    "more",
    [b"X: " + b"x" * HEAD_BYTES_MAX, b"x" * HEAD_BYTES_MAX, (b"X: " + b"x" * 500 + b"\r\n") * 33],
    ids=["a value", "a name", "values"],
)
def test_a_head_is_bounded_while_it_is_read(more: bytes, edge: Edge, caller: Connection) -> None:
    caller.send(b"GET / HTTP/1.1\r\n", HOST)
    for at in range(0, len(more), 1000):
        caller.send(more[at : at + 1000])
        time.sleep(0.001)
    refused(caller.hear(), "headers")
    assert caller.closed()
    assert edge.answerer.seen == []


def test_a_target_is_bounded_while_it_is_read(caller: Connection) -> None:
    caller.send(b"GET /")
    for _ in range(20):
        caller.send(b"a" * 1000)
        time.sleep(0.001)
    refused(caller.hear(), "headers")
    assert caller.closed()


def test_headers_are_counted_while_they_are_read(edge: Edge, caller: Connection) -> None:
    caller.send(b"GET / HTTP/1.1\r\n", HOST, *(b"A: b\r\n" for _ in range(HEADERS_MAX + 1)))
    refused(caller.hear(), "headers")
    assert caller.closed()
    assert edge.answerer.seen == []


@pytest.mark.parametrize("more", [b"X: y\r\n" * HEADERS_MAX, b"X: " + b"y" * 2 * HEAD_BYTES_MAX], ids=["many", "long"])
def test_trailers_are_bounded(more: bytes, edge: Edge, caller: Connection) -> None:
    caller.send(chunked(b"hello", end=b"0\r\n"))
    for at in range(0, len(more), 1000):
        caller.send(more[at : at + 1000])
        time.sleep(0.001)
    refused(caller.hear(), "body")
    assert caller.closed()
    assert edge.answerer.failed == ["BodyMalformed"]


def test_a_chunk_extension_is_bounded(edge: Edge, caller: Connection) -> None:
    caller.send(get("/a", "Transfer-Encoding: chunked", method="POST"), b"5;")
    for _ in range(20):
        caller.send(b"a" * 1000)
        time.sleep(0.001)
    refused(caller.hear(), "body")
    assert caller.closed()


# How many there may be.


def test_connections_are_bounded_by_address(caplog: pytest.LogCaptureFixture) -> None:
    with Edge(address_max=2) as edge, edge.connect() as first, edge.connect() as second:
        assert first.ask(get()).status == second.ask(get()).status == 200
        with edge.connect() as third:
            assert third.closed()
        first.socket.close()
        until(lambda: edge.places.open == 1)
        with edge.connect() as fourth:
            assert fourth.ask(get()).status == 200
        assert second.ask(get()).status == 200
    [told] = [record.getMessage() for record in caplog.records]
    assert told == "connections refused, for want of a place: 1 (2 are open)"


def test_connections_are_bounded_in_all() -> None:
    with Edge(connections_max=2) as edge, edge.connect() as first, edge.connect() as second:
        assert first.ask(get()).status == second.ask(get()).status == 200
        with edge.connect() as third:
            assert third.closed()
        assert first.ask(get()).status == 200


def test_a_place_comes_back_however_a_connection_ends(edge: Edge, caller: Connection) -> None:
    for raw in (b"", b"GET", b"rubbish\r\n\r\n", get(), get("/broken"), get("/fails"), post(b"x" * 10)[:-5]):
        with edge.connect() as other:
            other.send(raw)
    reset = edge.connect()
    reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    reset.socket.close()
    assert caller.ask(get()).status == 200
    until(lambda: edge.places.open == 1)


def test_a_connection_that_says_nothing_has_the_time_of_a_head(
    edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert caller.ask(get()).status == 200
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    begun = time.monotonic()
    with edge.connect() as silent, edge.connect() as dribbling:
        dribbling.send(b"\r\n")
        assert silent.closed() and dribbling.closed()
    assert time.monotonic() - begun < 2
    assert caller.silent(0.2), "one that has asked something is kept for longer"


def test_the_short_rest_of_a_body_that_nobody_reads_has_its_time(
    edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.8)
    with edge.connect() as slow:
        for connection in (caller, slow):
            assert connection.ask(post(b"x" * 100, "/unread")[:-50]).status == 401
        caller.send(b"x" * 50)
        assert slow.closed()
    assert caller.ask(get()).status == 200
    assert caller.silent(0.5)
