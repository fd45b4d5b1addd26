"""A caller's connection: what it may send, in which pieces and how slowly, and what it gets."""

from __future__ import annotations

import json
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from terraflow.app import listener, protocol, wire
from terraflow.app.framing import PIPELINE_MAX
from terraflow.gateway.http.head import HEAD_BYTES_MAX, HEADERS_MAX
from tests.harness import edge as harness
from tests.harness.caller import until
from tests.harness.edge import BODY_BYTES_MAX, DATE, Connection, Edge, Heard

HOST = b"Host: plane\r\n"


@pytest.fixture
def edge() -> Iterator[Edge]:
    with Edge() as running:
        yield running


@pytest.fixture
def caller(edge: Edge) -> Iterator[Connection]:
    with edge.connect() as connection:
        yield connection


def get(path: str = "/a", *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    return f"{method} {path} HTTP/{version}\r\n".encode() + HOST + "".join(f"{x}\r\n" for x in lines).encode() + b"\r\n"


def post(body: bytes, path: str = "/a", *lines: str) -> bytes:
    return get(path, f"Content-Length: {len(body)}", *lines, method="POST") + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", path: str = "/a") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + end
    return get(path, "Transfer-Encoding: chunked", method="POST") + body


def refused(heard: Heard, field: str) -> None:
    assert heard.status == 400
    assert heard.headers["content-type"] == "application/json"
    assert heard.headers["connection"] == "close"
    assert heard.headers["x-should-retry"] == "false"
    said = heard.json
    assert said["error"]["code"] == "INVALID_REQUEST"
    assert said["terraflow"]["details"]["problems"][0]["field"] == field


# Framing.


@pytest.mark.parametrize(
    "raw",
    [post(b"hello"), chunked(b"hel", b"lo"), chunked(b"hello", end=b"0\r\nX-Trailer: t\r\n\r\n")],
    ids=["length", "chunks", "trailer"],
)
def test_bytes_split_anywhere_are_the_same_request(raw: bytes, edge: Edge) -> None:
    with edge.connect() as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(1, len(raw)):
            connection.send(raw[:at])
            time.sleep(0.001)
            heard = connection.ask(raw[at:])
            assert (heard.status, heard.json["body"], heard.json["method"]) == (200, "hello", "POST"), at
            assert "x-trailer" not in heard.json["headers"]
            assert "connection" not in heard.headers


def test_a_request_byte_by_byte(caller: Connection) -> None:
    caller.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in chunked(b"hel", b"lo"):
        caller.send(bytes((byte,)))
        time.sleep(0.0005)
    assert caller.hear().json["body"] == "hello"


def test_an_answer_is_one_write_with_its_date(caller: Connection) -> None:
    caller.send(post(b"hello"))
    whole = caller.socket.recv(65_536)
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\ndate: " + DATE + b"\r\n")
    assert b"server" not in head.lower()
    assert json.loads(body)["body"] == "hello"


def test_nothing_waits_for_a_full_packet(edge: Edge, caller: Connection) -> None:
    caller.ask(get())
    [connection] = edge.state.connections
    inside = connection.transport.get_extra_info("socket")
    assert edge.run(lambda: inside.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) == 1


def test_pipelined_requests_are_answered_in_order(edge: Edge, caller: Connection) -> None:
    caller.send(get("/held/0"), *(post(str(n).encode(), f"/{n}") for n in range(1, 10)))
    until(lambda: edge.answerer.seen)
    assert caller.silent(0.05)
    assert edge.answerer.seen == ["/held/0"]
    edge.release()
    assert caller.hear().status == 200
    assert [caller.hear().json["body"] for _ in range(9)] == [str(n) for n in range(1, 10)]
    assert caller.ask(get("/after")).status == 200


def test_more_pipelined_than_wait(edge: Edge, caller: Connection) -> None:
    caller.send(get("/held"), *(get(f"/{n}") for n in range(PIPELINE_MAX + 5)))
    until(lambda: edge.answerer.seen)
    edge.release()
    assert [caller.hear().status for _ in range(PIPELINE_MAX + 1)] == [200] * (PIPELINE_MAX + 1)
    refused(caller.hear(), "request")
    assert caller.closed()


def test_a_refusal_waits_for_the_answers_before_it(edge: Edge, caller: Connection) -> None:
    caller.send(get("/held"), get("/next"), b"no HTTP\r\n\r\n", get("/never"))
    until(lambda: edge.answerer.seen)
    assert caller.silent(0.05)
    edge.release()
    assert caller.hear().status == 200
    assert caller.hear().json["path"] == "/next"
    refused(caller.hear(), "request")
    assert caller.closed()
    assert edge.answerer.seen == ["/held", "/next"]


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


# After an answer.


def test_a_short_body_that_nobody_read_leaves_the_connection_open(edge: Edge, caller: Connection) -> None:
    for _ in range(3):
        heard = caller.ask(get("/unread", "Content-Length: 5", method="POST"))
        assert (heard.status, heard.headers.get("connection")) == (401, None)
        caller.send(b"hello")
    assert caller.ask(post(b"hello")).json["body"] == "hello"
    assert [caller.ask(post(b"hello", "/unread")).status for _ in range(3)] == [401] * 3


@pytest.mark.parametrize("framing", [f"Content-Length: {wire.UNREAD_MAX + 1}", "Transfer-Encoding: chunked"])
def test_any_other_closes_it(framing: str, caller: Connection) -> None:
    heard = caller.ask(get("/unread", framing, method="POST"))
    assert (heard.status, heard.headers["connection"]) == (401, "close")
    assert caller.closed()


def test_a_caller_that_is_still_sending_can_read_its_refusal(caller: Connection) -> None:
    caller.send(get("/unread", "Content-Length: 9000000", method="POST"), b"x" * 9_000_000)
    assert caller.hear().status == 401


def test_what_is_sent_behind_the_last_answer_is_bounded_in_time(
    edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "LINGER_S", 0.1)
    caller.ask(get("/unread", "Content-Length: 9000000", method="POST"))
    begun = time.monotonic()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        while time.monotonic() - begun < 5:
            caller.send(b"x")
            time.sleep(0.01)
    until(lambda: not edge.state.connections)


def test_and_in_bytes(edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LINGER_BYTES_MAX", 1_000_000)
    monkeypatch.setattr(protocol, "LINGER_S", 60)
    caller.ask(get("/unread", "Content-Length: 900000000", method="POST"))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        caller.send(b"x" * 30_000_000)
    until(lambda: not edge.state.connections)


def test_connection_close_is_heard(edge: Edge, caller: Connection) -> None:
    heard = caller.ask(get("/a", "Connection: close"), get("/never"))
    assert (heard.status, heard.headers["connection"]) == (200, "close")
    assert caller.closed()
    assert edge.answerer.seen == ["/a"]


def test_a_handler_that_fails_closes_the_connection(edge: Edge, caller: Connection) -> None:
    caller.send(get("/fails"), get("/never"))
    assert caller.closed()
    assert edge.answerer.seen == ["/fails"]
    assert not edge.state.tasks


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
    with Edge(keep_alive_s=1) as edge, edge.connect() as slow, edge.connect() as never:
        time.sleep(0.7)
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


# Methods, targets, versions.


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"])
def test_any_method_gets_an_answer(method: str, caller: Connection) -> None:
    for _ in range(2):
        heard = caller.ask(get("/a?q", method=method), head=method == "HEAD")
        assert heard.status == 200
        assert int(heard.headers["content-length"]) > 0
    assert caller.ask(get("/b")).json["path"] == "/b"


def test_an_absolute_target_is_its_path(caller: Connection) -> None:
    assert caller.ask(get("http://plane/a/b?c=d")).json["path"] == "/a/b"
    assert caller.ask(get("HTTPS://PLANE")).json["path"] == "/"


@pytest.mark.parametrize(
    ("target", "method", "field"),
    [
        ("plane:443", "CONNECT", "path"),
        ("*", "OPTIONS", "path"),
        ("/a#b", "GET", "path"),
        ("http://u:p@plane/a", "GET", "path"),
        ("file:///etc", "GET", "path"),
        ("http://other/a", "GET", "host"),
    ],
)
def test_a_target_that_is_no_path(target: str, method: str, field: str, edge: Edge, caller: Connection) -> None:
    refused(caller.ask(get(target, method=method), get("/never")), field)
    assert caller.closed()
    assert edge.answerer.seen == []


def test_http_1_0_gets_one_answer_and_no_chunks(edge: Edge) -> None:
    for lines in ([], ["Connection: keep-alive"]):
        with edge.connect() as caller:
            heard = caller.ask(get("/a", *lines, version="1.0"), get("/never"))
            assert (heard.status, heard.headers["connection"]) == (200, "close")
            assert caller.closed()
    with edge.connect() as caller:
        heard = caller.ask(get("/stream/3/4", version="1.0"))
        assert "transfer-encoding" not in heard.headers
        assert heard.body == b"x" * 12 + b"end"
    with edge.connect() as caller:
        assert caller.ask(b"GET /a HTTP/1.0\r\n\r\n").status == 200


def test_an_upgrade_is_not_heard(edge: Edge, caller: Connection) -> None:
    lines = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAA"]
    for raw in (post(b"hello", "/a", *lines), get("/a", *lines, "Transfer-Encoding: chunked", method="POST")):
        heard = caller.ask(raw, b"" if raw.endswith(b"hello") else b"5\r\nhello\r\n0\r\n\r\n")
        assert (heard.status, heard.json["body"]) == (200, "hello")
    assert caller.ask(get("/ws", "Connection: Upgrade", "Upgrade: websocket")).json["path"] == "/ws"
    raw = post(b"hello world", "/a", *lines)
    for at in (20, len(raw) - 11, len(raw) - 5):
        caller.send(raw[:at])
        time.sleep(0.01)
        assert caller.ask(raw[at:]).json["body"] == "hello world"
    caller.send(post(b"one", "/1", *lines), post(b"two", "/2", *lines), get("/3"))
    assert [caller.hear().json["body"] for _ in range(3)] == ["one", "two", ""]
    assert len(edge.answerer.seen) == 9


def test_nothing_hides_in_the_body_of_an_upgrade(edge: Edge, caller: Connection) -> None:
    hidden = get("/hidden")
    raw = post(hidden, "/a", "Connection: Upgrade", "Upgrade: websocket")
    caller.send(raw[: -len(hidden)])
    time.sleep(0.02)
    assert caller.ask(hidden).json["body"] == hidden.decode()
    assert caller.ask(get("/b")).json["path"] == "/b"
    assert edge.answerer.seen == ["/a", "/b"]


# Callers that leave.


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
def test_a_caller_that_leaves_is_told_once(how: str, edge: Edge, caller: Connection) -> None:
    caller.send(get("/held"))
    until(lambda: edge.answerer.seen)
    if how == "reset":
        caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    if how == "half-close":
        caller.socket.shutdown(socket.SHUT_WR)
    else:
        caller.socket.close()
    until(lambda: edge.answerer.left)
    edge.release()
    until(lambda: not edge.state.tasks)
    assert edge.answerer.left == ["/held"]
    assert not edge.state.connections


def test_a_caller_that_leaves_after_its_answer_left_nothing(edge: Edge, caller: Connection) -> None:
    edge.release()
    caller.ask(get("/held"))
    caller.socket.close()
    until(lambda: not edge.state.connections)
    assert edge.answerer.left == []


def test_a_caller_that_leaves_at_once_has_asked_nothing(edge: Edge) -> None:
    with edge.connect() as caller:
        caller.send(post(b"hello", "/a"))
        caller.socket.close()
    until(lambda: not edge.state.connections)
    assert edge.answerer.failed in ([], ["Disconnected"])


def test_a_caller_that_leaves_a_stream(edge: Edge, caller: Connection) -> None:
    caller.send(get("/stream/100000000/1000"))
    caller.socket.recv(1000)
    caller.socket.close()
    until(lambda: edge.answerer.left and not edge.state.tasks)
    assert edge.answerer.left == ["/stream/100000000/1000"]


def test_half_a_head_and_then_nothing(edge: Edge, caller: Connection) -> None:
    caller.send(b"GET / HTTP/1.1\r\nHo")
    caller.socket.shutdown(socket.SHUT_WR)
    assert caller.closed()
    assert edge.answerer.seen == []


# Streams.


def test_a_stream_is_chunks_and_the_connection_lives_on(caller: Connection) -> None:
    for _ in range(2):
        heard = caller.ask(get("/stream/3/4"))
        assert heard.headers["transfer-encoding"] == "chunked"
        assert heard.body == b"x" * 12 + b"end"


def test_a_stream_that_breaks_off_is_seen_to(edge: Edge, caller: Connection) -> None:
    caller.send(get("/broken"))
    received = caller.rest()
    assert b"begun" in received or received == b""
    assert b"0\r\n\r\n" not in received and b"500" not in received


def test_a_caller_that_does_not_read_holds_its_stream_up(edge: Edge, caller: Connection) -> None:
    caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    caller.send(get("/stream/20000/1000"))
    until(lambda: edge.answerer.sent_bytes)
    time.sleep(0.3)
    held = edge.answerer.sent_bytes
    assert held < 10_000_000
    time.sleep(0.2)
    assert edge.answerer.sent_bytes == held
    [connection] = edge.state.connections
    assert edge.run(connection.transport.get_write_buffer_size) < 200_000
    assert len(caller.hear().body) == 20_000_003


def test_one_that_takes_nothing_for_long_is_given_up(
    edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "STALL_S", 0.2)
    caller.send(get("/stream/1000000/1000"))
    until(lambda: edge.answerer.left and not edge.state.tasks)
    assert not edge.state.connections


def test_one_that_has_not_taken_its_stream_in_time_is_told_and_closed(
    edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "STREAM_S", 0.3)
    monkeypatch.setattr(protocol, "LINGER_S", 0.5)
    with edge.connect() as late:
        late.send(get("/stream/1000000/1000"))
        caller.send(get("/stream/1000000/1000"))
        until(lambda: edge.answerer.failed == ["Stalled", "Stalled"])
        assert late.hear().body.endswith(b"xtoo late")
        assert late.closed()
    until(lambda: not edge.state.connections)
    assert edge.answerer.left == [] and not edge.state.tasks


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


def test_when_there_is_no_descriptor_accepting_rests(
    edge: Edge, caller: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "REST_S", 0.1)
    assert caller.ask(get()).status == 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with edge.connect() as waiting:
        until(lambda: edge.places.open == 2)
        waits = socket.socket()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (waits.fileno() + 1, hard))
            waits.connect(("127.0.0.1", edge.port))
            assert waiting.ask(get()).status == caller.ask(get()).status == 200
            assert edge.places.open == 2
            assert "no connection can be accepted" in caplog.text
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with Connection(waits) as served:
            waits.settimeout(5)
            assert served.ask(get()).status == 200


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


# The end of the process.


def test_shutting_down_closes_what_is_idle_and_lets_the_rest_finish(edge: Edge, caller: Connection) -> None:
    with edge.connect() as idle, edge.connect() as streaming:
        assert idle.ask(get()).status == 200
        caller.send(get("/held"), get("/never"))
        streaming.send(get("/stream/100/10000"))
        streaming.socket.recv(10)
        until(lambda: "/held" in edge.answerer.seen)
        edge.run(lambda: [connection.shutdown() for connection in list(edge.state.connections)])
        assert idle.closed()
        edge.release()
        heard = caller.hear()
        assert (heard.status, heard.headers["connection"]) == (200, "close")
        assert caller.closed()
        assert streaming.rest().endswith(b"end\r\n0\r\n\r\n")
    assert "/never" not in edge.answerer.seen


def test_what_is_cancelled_says_so(edge: Edge, caller: Connection) -> None:
    caller.send(get("/held"))
    until(lambda: edge.answerer.seen)
    edge.run(lambda: [task.cancel() for task in list(edge.state.tasks)])
    heard = caller.hear()
    assert (heard.status, heard.json["error"]["code"]) == (500, "INTERNAL_ERROR")
