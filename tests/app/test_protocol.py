"""A caller's connection: what it may send, in which pieces, what it gets, and how it ends."""

from __future__ import annotations

import json
import socket
import time

import pytest

from terraflow.app import protocol, wire
from terraflow.app.framing import PIPELINE_MAX
from tests.app.spoken import chunked, get, post, refused
from tests.harness import edge as harness
from tests.harness.caller import until
from tests.harness.edge import DATE, Connection, Edge

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
