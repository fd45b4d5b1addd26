"""Requests that two readers could take for different ones: refused, the connection closed, and what hides behind them
never read. Each is sent with a second request behind it, which must not be answered."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from terraflow.core.reasons import ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CANARY, body_of
from tests.harness.checks import Checks
from tests.harness.edge import Connection

BODY = json.dumps(body_of()).encode()
SIZE = len(BODY)
LENGTH = b"Content-Length: %d" % SIZE
CHUNKED = b"Transfer-Encoding: chunked"
CHUNKS = b"%x\r\n%b\r\n" % (SIZE, BODY)
PATH = "/v1/chat/completions"
START = b"POST /v1/chat/completions HTTP/1.1"
SECOND = b"GET /healthz HTTP/1.1\r\nHost: plane\r\n\r\n"


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(bundle.document(purpose("plain", sim("one"))))


def request(site: Site, lines: tuple[bytes, ...], body: bytes, start: bytes = START, end: bytes = b"\r\n") -> bytes:
    head = (start, b"Authorization: Bearer " + site.caller.api_key.encode(), *lines)
    return b"".join(line + end for line in head) + end + body


HOST = b"Host: plane"

# fmt: off
HEADS: dict[str, tuple[bytes, ...]] = {
    "two lengths":                   (HOST, LENGTH, LENGTH),
    "two lengths that differ":       (HOST, LENGTH, b"Content-Length: 0"),
    "two lengths in one":            (HOST, b"Content-Length: %d, %d" % (SIZE, SIZE)),
    "two lengths in one, differing": (HOST, b"Content-Length: 0, %d" % SIZE),
    "length of two numbers":         (HOST, b"Content-Length: %d 0" % SIZE),
    "length with a sign":            (HOST, b"Content-Length: +%d" % SIZE),
    "length below zero":             (HOST, b"Content-Length: -%d" % SIZE),
    "length in hexadecimal":         (HOST, b"Content-Length: 0x%x" % SIZE),
    "length with a fraction":        (HOST, b"Content-Length: %d.0" % SIZE),
    "length with an exponent":       (HOST, b"Content-Length: 1e2"),
    "length with an underscore":     (HOST, b"Content-Length: 1_0"),
    "length with a comma":           (HOST, b"Content-Length: %d," % SIZE),
    "length with a parameter":       (HOST, b"Content-Length: %d;x" % SIZE),
    "length with a vertical tab":    (HOST, b"Content-Length: \x0b%d" % SIZE),
    "length with a null":            (HOST, b"Content-Length: %d\0" % SIZE),
    "length in other digits":        (HOST, "Content-Length: ٩".encode()),
    "length beyond 64 bits":         (HOST, b"Content-Length: %d" % (2**64 + SIZE)),
    "length that is empty":          (HOST, b"Content-Length:"),
    "length that is blank":          (HOST, b"Content-Length:   "),
    "length that is text":           (HOST, b"Content-Length: long"),
    "length in quotes":              (HOST, b'Content-Length: "%d"' % SIZE),
    "length named with a space":     (HOST, b"Content-Length : %d" % SIZE),
    "length named with a tab":       (HOST, b"Content-Length\t: %d" % SIZE),
    "length folded":                 (HOST, b"Content-Length:\r\n %d" % SIZE),
    "length and then chunks":        (HOST, LENGTH, CHUNKED),
    "chunks and then length":        (HOST, CHUNKED, LENGTH),
    "chunks and no length":          (HOST, CHUNKED, b"Content-Length: 0"),
    "length and an unknown coding":  (HOST, LENGTH, b"Transfer-Encoding: x"),
    "length and identity":           (HOST, LENGTH, b"Transfer-Encoding: identity"),
    "identity":                      (HOST, b"Transfer-Encoding: identity"),
    "identity, chunked":             (HOST, b"Transfer-Encoding: identity, chunked"),
    "gzip, chunked":                 (HOST, b"Transfer-Encoding: gzip, chunked"),
    "chunked, gzip":                 (HOST, b"Transfer-Encoding: chunked, gzip"),
    "chunked, identity":             (HOST, b"Transfer-Encoding: chunked, identity"),
    "chunked twice":                 (HOST, CHUNKED, CHUNKED),
    "chunked twice in one":          (HOST, b"Transfer-Encoding: chunked, chunked"),
    "chunked, then identity":        (HOST, CHUNKED, b"Transfer-Encoding: identity"),
    "identity, then chunked":        (HOST, b"Transfer-Encoding: identity", CHUNKED),
    "coding of almost the name":     (HOST, b"Transfer-Encoding: xchunked"),
    "coding of a longer name":       (HOST, b"Transfer-Encoding: chunkedx"),
    "coding with a parameter":       (HOST, b"Transfer-Encoding: chunked;q=1"),
    "coding with a comma first":     (HOST, b"Transfer-Encoding: ,chunked"),
    "coding with a comma last":      (HOST, b"Transfer-Encoding: chunked,"),
    "coding in quotes":              (HOST, b'Transfer-Encoding: "chunked"'),
    "coding with a vertical tab":    (HOST, b"Transfer-Encoding: \x0bchunked"),
    "coding with a form feed":       (HOST, b"Transfer-Encoding: chunked\x0c"),
    "coding with a null":            (HOST, b"Transfer-Encoding: chunked\0"),
    "coding that is empty":          (HOST, b"Transfer-Encoding:"),
    "coding folded":                 (HOST, b"Transfer-Encoding:\r\n chunked"),
    "coding folded by a tab":        (HOST, b"Transfer-Encoding: \r\n\tchunked"),
    "coding named with a space":     (HOST, b"Transfer-Encoding : chunked"),
    "coding after a bare LF":        (HOST, b"X: y\nTransfer-Encoding: chunked"),
    "coding after a bare CR":        (HOST, b"X: y\rTransfer-Encoding: chunked"),
    "a length after a bare LF":      (HOST, b"X: y\nContent-Length: 5", LENGTH),
    "a folded header":               (HOST, b"X: y\r\n z", LENGTH),
    "a header folded by a tab":      (HOST, b"X: y\r\n\tz", LENGTH),
    "a first line that is folded":   (b" Host: plane", LENGTH),
    "a header without a colon":      (HOST, b"X", LENGTH),
    "a header without a name":       (HOST, b": y", LENGTH),
    "a name with a space":           (HOST, b"X : y", LENGTH),
    "a name with a space inside":    (HOST, b"X Y: z", LENGTH),
    "a name with a null":            (HOST, b"X\0: y", LENGTH),
    "a name with a control":         (HOST, b"X\x01: y", LENGTH),
    "a name with a parenthesis":     (HOST, b"X(: y", LENGTH),
    "a name of eight bits":          (HOST, b"X\xe9: y", LENGTH),
    "a name behind a vertical tab":  (HOST, b"\x0bX: y", LENGTH),
    "a value with a null":           (HOST, b"X: a\0b", LENGTH),
    "a value with a bare CR":        (HOST, b"X: a\rb", LENGTH),
    "a value with a control":        (HOST, b"X: a\x01b", LENGTH),
    "a value with a delete":         (HOST, b"X: a\x7fb", LENGTH),
    "no host":                       (LENGTH,),
    "two hosts":                     (HOST, HOST, LENGTH),
    "two hosts that differ":         (HOST, b"Host: other", LENGTH),
    "two hosts in one":              (b"Host: plane, other", LENGTH),
    "two hosts by a space":          (b"Host: plane other", LENGTH),
    "a host with a user":            (b"Host: user@plane", LENGTH),
    "a host with a path":            (b"Host: plane/v1", LENGTH),
    "a host with a query":           (b"Host: plane?", LENGTH),
    "a host with a backslash":       (b"Host: plane\\", LENGTH),
    "a host folded":                 (b"Host: plane\r\n other", LENGTH),
}

STARTS: dict[str, bytes] = {
    "HTTP/0.9":                      b"POST /v1/chat/completions",
    "HTTP/0.9 by name":              b"POST /v1/chat/completions HTTP/0.9",
    "HTTP/1.2":                      b"POST /v1/chat/completions HTTP/1.2",
    "HTTP/1.10":                     b"POST /v1/chat/completions HTTP/1.10",
    "HTTP/2.0":                      b"POST /v1/chat/completions HTTP/2.0",
    "HTTP/3":                        b"POST /v1/chat/completions HTTP/3",
    "http/1.1":                      b"POST /v1/chat/completions http/1.1",
    "HTTP/01.1":                     b"POST /v1/chat/completions HTTP/01.1",
    "HTTP/1.1 and a space":          b"POST /v1/chat/completions HTTP/1.1 ",
    "HTTP/1.1 and a word":           b"POST /v1/chat/completions HTTP/1.1 x",
    "no version":                    b"POST /v1/chat/completions ",
    "a method in lower case":        b"post /v1/chat/completions HTTP/1.1",
    "an unknown method":             b"BREW /v1/chat/completions HTTP/1.1",
    "a method behind a space":       b" POST /v1/chat/completions HTTP/1.1",
    "a method and a tab":            b"POST\t/v1/chat/completions HTTP/1.1",
    "a method with a null":          b"PO\0ST /v1/chat/completions HTTP/1.1",
    "a target with a space":         b"POST /v1/chat completions HTTP/1.1",
    "a target with a tab":           b"POST /v1/chat\tcompletions HTTP/1.1",
    "a target with a control":       b"POST /v1/chat\x01completions HTTP/1.1",
    "a target of eight bits":        b"POST /v1/chat\xe9completions HTTP/1.1",
    "a target with a fragment":      b"POST /v1/chat/completions#x HTTP/1.1",
    "a target that is relative":     b"POST v1/chat/completions HTTP/1.1",
    "a target that is a star":       b"POST * HTTP/1.1",
    "a target that is a query":      b"POST ?/v1/chat/completions HTTP/1.1",
    "a target of another host":      b"POST http://other/v1/chat/completions HTTP/1.1",
    "a target with a user":          b"POST http://plane@other/v1/chat/completions HTTP/1.1",
    "a target of another scheme":    b"POST ftp://plane/v1/chat/completions HTTP/1.1",
    "the preface of HTTP/2":         b"PRI * HTTP/2.0\r\n\r\nSM",
}

FRAMED: dict[str, tuple[bytes, tuple[bytes, ...]]] = {
    "two keys":                      (START, (b"Authorization: Bearer tf_" + CANARY.encode(),)),
    "another key":                   (START, (b"x-api-key: tf_" + CANARY.encode(),)),
    "two data classes":              (START, (b"X-TerraFlow-Data-Class: public", b"x-terraflow-data-class: internal")),
    "a path with dots":              (b"POST /v1/x/../chat/completions HTTP/1.1", ()),
    "a path with encoded dots":      (b"POST /v1/x/%2e%2e/chat/completions HTTP/1.1", ()),
    "a path with an encoded slash":  (b"POST /v1/chat%2fcompletions HTTP/1.1", ()),
    "a path with a backslash":       (b"POST /v1\\chat/completions HTTP/1.1", ()),
    "a path with two slashes":       (b"POST //v1/chat/completions HTTP/1.1", ()),
}

BODIES: dict[str, bytes] = {
    "a size with a prefix":          b"0x%x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "a size with a sign":            b"+%x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "a size below zero":             b"-1\r\n%b\r\n0\r\n\r\n" % BODY,
    "a size behind a space":         b" %x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "a size and a space":            b"%x \r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "a size and a tab":              b"%x\t\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "a size beyond 64 bits":         b"1%016x\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "a size that is none":           b"zz\r\n%b\r\n0\r\n\r\n" % BODY,
    "no size":                       b"\r\n%b\r\n0\r\n\r\n" % BODY,
    "a size that ends in LF":        b"%x\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "a size that ends in CR":        b"%x\r%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "an extension that ends in LF":  b"%x;a\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "an extension with a bare CR":   b"%x;a\rb\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "an extension with a control":   b"%x;\x01\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY),
    "an extension with a quoted end": b'%x;a="\r\n"\r\n%b\r\n0\r\n\r\n' % (SIZE, BODY),
    "a chunk that ends in LF":       b"%x\r\n%b\n0\r\n\r\n" % (SIZE, BODY),
    "a chunk without an end":        b"%x\r\n%b0\r\n\r\n" % (SIZE, BODY),
    "a chunk longer than its size":  b"%x\r\n%bx\r\n0\r\n\r\n" % (SIZE, BODY),
    "a last chunk that ends in LF":  CHUNKS + b"0\n\r\n",
    "an end that is LF":             CHUNKS + b"0\r\n\n",
    "a trailer without a colon":     CHUNKS + b"0\r\nX y\r\n\r\n",
    "a trailer that is folded":      CHUNKS + b"0\r\nX: y\r\n z\r\n\r\n",
    "a trailer with a length":       CHUNKS + b"0\r\nContent-Length: 5\r\n\r\n",
    "a trailer with a coding":       CHUNKS + b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
}

MEANT: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    "a length":                      ((HOST, LENGTH), BODY),
    "a length with zeros":           ((HOST, b"Content-Length: 00%d" % SIZE), BODY),
    "a length between blanks":       ((HOST, b"Content-Length: \t%d \t" % SIZE), BODY),
    "chunks":                        ((HOST, CHUNKED), CHUNKS + b"0\r\n\r\n"),
    "chunks in capitals":            ((HOST, b"TRANSFER-ENCODING: Chunked"), CHUNKS + b"0\r\n\r\n"),
    "chunks between blanks":         ((HOST, b"Transfer-Encoding: \tchunked "), CHUNKS + b"0\r\n\r\n"),
    "a size with zeros":             ((HOST, CHUNKED), b"000" + CHUNKS + b"000\r\n\r\n"),
    "an extension":                  ((HOST, CHUNKED), b"%x;a=b;c=\"d\"\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)),
    "a trailer":                     ((HOST, CHUNKED), CHUNKS + b"0\r\nX-TerraFlow-Data-Class: x\r\n\r\n"),
    "an Upgrade":                    ((HOST, b"Connection: Upgrade", b"Upgrade: h2c", LENGTH), BODY),
    "a value of eight bits":         ((HOST, b"X: caf\xe9", LENGTH), BODY),
    "a host with a port":            ((b"Host: [::1]:8080", LENGTH), BODY),
    "an empty host":                 ((b"Host:", LENGTH), BODY),
}
# fmt: on


@pytest.fixture(autouse=True)
def told_apart(site: Site) -> Iterator[list[int]]:
    """How many governed requests a test may make; none, unless it says so."""
    count = "SELECT count(*) FROM leaf WHERE kind = 'intent'"
    before, meant = site.folder.rows(count)[0][0], [0]
    yield meant
    assert site.folder.rows(count)[0][0] == before + meant[0]


def refused(connection: Connection, raw: bytes, checks: Checks) -> None:
    connection.send(raw, SECOND)
    heard = connection.hear()
    assert checks.raised.wire(heard.status, heard.headers, heard.body, PATH) is ModelApi.INVALID_REQUEST
    assert heard.headers["connection"] == "close"
    assert "server" not in heard.headers
    assert CANARY.encode() not in heard.body
    assert connection.closed()


@pytest.mark.parametrize("body", [BODY, CHUNKS + b"0\r\n\r\n", b""], ids=["plain", "chunks", "none"])
@pytest.mark.parametrize("case", HEADS)
def test_a_head(case: str, body: bytes, site: Site, connection: Connection, checks: Checks) -> None:
    refused(connection, request(site, HEADS[case], body), checks)


@pytest.mark.parametrize("case", STARTS)
def test_a_request_line(case: str, site: Site, connection: Connection, checks: Checks) -> None:
    refused(connection, request(site, (HOST, LENGTH), BODY, STARTS[case]), checks)


@pytest.mark.parametrize("case", BODIES)
def test_chunks(case: str, site: Site, connection: Connection, checks: Checks) -> None:
    refused(connection, request(site, (HOST, CHUNKED), BODIES[case]), checks)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n", b"\n\r"], ids=["LF", "CR", "CRCRLF", "LFCR"])
def test_lines_that_end_otherwise(end: bytes, site: Site, connection: Connection, checks: Checks) -> None:
    refused(connection, request(site, (HOST, LENGTH), BODY, end=end), checks)


@pytest.mark.parametrize("lines", [(), (b"Connection: keep-alive",)], ids=["close", "keep-alive"])
def test_chunks_over_http_1_0(lines: tuple[bytes, ...], site: Site, connection: Connection, checks: Checks) -> None:
    start = b"POST /v1/chat/completions HTTP/1.0"
    refused(connection, request(site, (HOST, CHUNKED, *lines), CHUNKS + b"0\r\n\r\n", start), checks)


@pytest.mark.parametrize("case", FRAMED)
def test_what_is_clear_where_it_ends_leaves_the_connection_open(
    case: str, site: Site, connection: Connection, checks: Checks
) -> None:
    start, lines = FRAMED[case]
    for _ in range(2):
        connection.send(request(site, (HOST, *lines, LENGTH), BODY, start), SECOND)
        heard = connection.hear()
        assert checks.raised.wire(heard.status, heard.headers, heard.body, PATH) is ModelApi.INVALID_REQUEST
        assert connection.hear().body == b'{"status":"ok"}'


@pytest.mark.parametrize("case", MEANT)
def test_what_can_only_be_one_request_is(
    case: str, told_apart: list[int], site: Site, connection: Connection, checks: Checks
) -> None:
    lines, body = MEANT[case]
    for _ in range(2):
        connection.send(request(site, lines, body), SECOND)
        assert connection.hear().status == 200
        assert connection.hear().body == b'{"status":"ok"}'
    told_apart[0] = 2
