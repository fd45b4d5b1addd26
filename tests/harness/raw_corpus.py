"""Bytes on a raw socket that an HTTP server may be asked to read, and what must happen: the corpus of the edge.

1. A row's bytes are sent whole. `KEY` in them is replaced by an API key. What must be heard is a list of statuses and
   whether the connection is open then; `governed` is how many chat requests may be recorded.
2. AMBIGUOUS rows can be read as different requests by readers that are in use. None may be governed, nothing behind
   them may be answered, and the connection must close: behind each comes `NEXT`.
3. CLEAR rows end where every reader ends them, and the connection goes on: behind each comes `NEXT`, too.
4. LENIENT names the clear rows that some readers refuse; whoever reads them reads the same.
5. LAST rows end the connection by what they say themselves.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from tests.harness.caller import CANARY, body_of

KEY = b"%KEY%"
BODY = json.dumps(body_of()).encode()
NEXT = b"GET /healthz HTTP/1.1\r\nHost: plane\r\n\r\n"
CHAT = b"POST /v1/chat/completions HTTP/1.1"
HOST = b"Host: plane"
LENGTH = b"Content-Length: %d" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked"
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
END = b"0\r\n\r\n"
LONG = 600_000
"""More than one read of the socket brings, so that it is bounded while it is read."""
AUTHORIZED = b"Authorization: Bearer " + KEY


class Row(NamedTuple):
    """What is sent, and what must come of it."""

    name: str
    raw: bytes
    heard: tuple[int, ...]
    open: bool
    governed: int = 0


def ask(*lines: bytes, body: bytes = BODY, start: bytes = CHAT, host: bytes = HOST) -> bytes:
    """A chat request of header lines, an API key among them; `host` may be empty."""
    return b"\r\n".join((start, *((host,) if host else ()), AUTHORIZED, *lines, b"", b"")) + body


def get(path: bytes = b"/healthz", *lines: bytes, version: bytes = b"HTTP/1.1", host: bytes = HOST) -> bytes:
    """A request without a body."""
    return b"\r\n".join((b"GET " + path + b" " + version, *((host,) if host else ()), *lines, b"", b""))


def _hidden(size: int = len(NEXT)) -> bytes:
    return b"Content-Length: %d" % size


_TORN: dict[str, bytes] = {
    # Where the body ends.
    "CL.TE: a request behind the last chunk": ask(_hidden(len(END + NEXT)), CHUNKED, body=END + NEXT),
    "TE.CL: a request inside of a chunk": ask(
        CHUNKED, b"Content-Length: 4", body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(NEXT), NEXT)
    ),
    "TE.TE: a second coding that nobody knows": ask(CHUNKED, b"Transfer-Encoding: cow", body=CHUNK + END),
    "TE.0: chunks beside a length of nought": ask(b"Content-Length: 0", CHUNKED, body=CHUNK + END),
    "CL.CL: a shorter length behind": ask(LENGTH, b"Content-Length: 4"),
    "CL.CL: the same length again": ask(LENGTH, LENGTH),
    "CL.CL: in another case": ask(LENGTH, b"CONTENT-LENGTH: 4"),
    "a list of lengths": ask(b"Content-Length: %d, %d" % (len(BODY), len(BODY))),
    "a length with a plus": ask(b"Content-Length: +%d" % len(BODY)),
    "a length with a minus": ask(b"Content-Length: -1"),
    "a length in hexadecimal": ask(b"Content-Length: 0x%x" % len(BODY)),
    "a length with an underscore": ask(b"Content-Length: 1_00"),
    "a length of 2^64 more": ask(b"Content-Length: %d" % (2**64 + len(BODY))),
    "a length of 2^32 and text": ask(b"Content-Length: 4294967296x"),
    "a length with a null behind": ask(LENGTH + b"\0"),
    "a length named with a space": ask(b"Content-Length : %d" % len(BODY)),
    "a length on a folded line": ask(b"Content-Length:\r\n %d" % len(BODY)),
    "no length's value": ask(b"Content-Length:"),
    "a coding named with a space": ask(b"Transfer-Encoding : chunked", body=CHUNK + END),
    "a coding named with a tab": ask(b"Transfer-Encoding\t: chunked", body=CHUNK + END),
    "a coding behind a vertical tab": ask(b"Transfer-Encoding: \x0bchunked", body=CHUNK + END),
    "a coding behind a form feed": ask(b"Transfer-Encoding: \x0cchunked", body=CHUNK + END),
    "a coding behind a no-break space": ask(b"Transfer-Encoding: \xa0chunked", body=CHUNK + END),
    "a coding in quotes": ask(b'Transfer-Encoding: "chunked"', body=CHUNK + END),
    "a coding on a folded line": ask(b"Transfer-Encoding:\r\n chunked", body=CHUNK + END),
    "a coding with a comma before": ask(b"Transfer-Encoding: , chunked", body=CHUNK + END),
    "a coding with a parameter": ask(b"Transfer-Encoding: chunked; q=0", body=CHUNK + END),
    "identity and chunked": ask(b"Transfer-Encoding: identity, chunked", body=CHUNK + END),
    "chunked, then gzip": ask(b"Transfer-Encoding: chunked, gzip", body=CHUNK + END),
    "gzip alone": ask(b"Transfer-Encoding: gzip", LENGTH),
    "a coding with a null inside": ask(b"Transfer-Encoding: chun\0ked", LENGTH),
    "chunks in HTTP/1.0": ask(CHUNKED, body=CHUNK + END, start=CHAT[:-1] + b"0"),
    "chunks in HTTP/1.0 that keeps alive": ask(
        CHUNKED, b"Connection: keep-alive", body=CHUNK + END, start=CHAT[:-1] + b"0"
    ),
    # Chunks.
    "a size beyond 64 bits": ask(CHUNKED, body=b"10000000000000005\r\n" + BODY),
    "a size of seventeen Fs": ask(CHUNKED, body=b"FFFFFFFFFFFFFFFFF\r\n" + BODY),
    "a size with 0x": ask(CHUNKED, body=b"0x5\r\nhello\r\n" + END),
    "a size with a minus": ask(CHUNKED, body=b"-5\r\nhello\r\n" + END),
    "a size with an underscore": ask(CHUNKED, body=b"0_5\r\nhello\r\n" + END),
    "a size behind a space": ask(CHUNKED, body=b" 5\r\nhello\r\n" + END),
    "no size": ask(CHUNKED, body=b"\r\nhello\r\n" + END),
    "an extension without a size": ask(CHUNKED, body=b";a\r\nhello\r\n" + END),
    "a size line that ends in LF": ask(CHUNKED, body=b"5\nhello\r\n" + END),
    "a size line that ends in CR": ask(CHUNKED, body=b"5\rhello\r\n" + END),
    "a chunk that ends in LF": ask(CHUNKED, body=b"5\r\nhello\n" + END),
    "a chunk that ends in another two bytes": ask(CHUNKED, body=b"5\r\nhelloXX" + END),
    "a chunk that is longer than its size": ask(CHUNKED, body=b"4\r\nhello\r\n" + END),
    "an extension with a bare LF (TERM.EXT)": ask(CHUNKED, body=b"5;a\nhello\r\n" + END),
    "an extension with a bare CR": ask(CHUNKED, body=b"5;a\rb\r\nhello\r\n" + END),
    "an extension with a null": ask(CHUNKED, body=b"5;a\0\r\nhello\r\n" + END),
    "a last chunk that ends in LF": ask(CHUNKED, body=CHUNK + b"0\n\n"),
    "a last chunk with a bare LF behind": ask(CHUNKED, body=CHUNK + b"0\r\n\n"),
    "a trailer with a space in its name": ask(CHUNKED, body=CHUNK + b"0\r\nA B: c\r\n\r\n"),
    "a trailer that is folded": ask(CHUNKED, body=CHUNK + b"0\r\nA: b\r\n c\r\n\r\n"),
    "a trailer that ends in LF": ask(CHUNKED, body=CHUNK + b"0\r\nA: b\n\r\n"),
    # Lines and names.
    "lines that end in LF": ask(LENGTH).replace(b"\r\n", b"\n"),
    "lines that end in CR": ask(LENGTH).replace(b"\r\n", b"\r"),
    "a head that ends in LF": ask(LENGTH, body=b"")[:-2] + b"\n" + BODY,
    "a header behind a bare LF": ask(b"X: y\nX-TerraFlow-Data-Class: public", LENGTH),
    "a header behind a bare CR": ask(b"X: y\rX-TerraFlow-Data-Class: public", LENGTH),
    "a header that is folded": ask(b"X: y\r\n\tz", LENGTH),
    "a first header that is folded": ask(LENGTH, host=b" Host: plane"),
    "a name with a null": ask(b"X\0Y: z", LENGTH),
    "a value with a null": ask(b"X: y\0z", LENGTH),
    "a value with an escape": ask(b"X: y\x1bz", LENGTH),
    "a name with a space before the colon": ask(b"X : y", LENGTH),
    "a name of nothing": ask(b": y", LENGTH),
    "a line without a colon": ask(b"X", LENGTH),
    "a name of eight bits": ask(b"X\xad: y", LENGTH),
    # Whom it is for.
    "two hosts": ask(LENGTH, b"Host: other"),
    "two hosts in another case": ask(LENGTH, b"hOsT: plane"),
    "no host": ask(LENGTH, host=b""),
    "a host with a user": ask(LENGTH, host=b"Host: other@plane"),
    "a host with a path": ask(LENGTH, host=b"Host: plane/other"),
    "a list of hosts": ask(LENGTH, host=b"Host: plane,other"),
    "a host with two ports": ask(LENGTH, host=b"Host: plane:80:81"),
    "a host with a port that is none": ask(LENGTH, host=b"Host: plane:x"),
    "a host of half a bracket": ask(LENGTH, host=b"Host: [::1"),
    "a host of eight bits": ask(LENGTH, host=b"Host: pl\xe4ne"),
    "a target of another host": ask(LENGTH, start=b"POST http://other/v1/chat/completions HTTP/1.1"),
    "a target with a user": ask(LENGTH, start=b"POST http://a@plane/v1/chat/completions HTTP/1.1"),
    "a target of another scheme": ask(LENGTH, start=b"POST file://plane/v1/chat/completions HTTP/1.1"),
    "a target without a slash": ask(LENGTH, start=b"POST v1/chat/completions HTTP/1.1"),
    "a target with a fragment": ask(LENGTH, start=b"POST /v1/chat/completions#a HTTP/1.1"),
    "a target with a space": ask(LENGTH, start=b"POST /v1/chat/completions /x HTTP/1.1"),
    "a target with a null": ask(LENGTH, start=b"POST /v1/chat\0/completions HTTP/1.1"),
    "a target of eight bits": ask(LENGTH, start=b"POST /v1/ch\xe4t HTTP/1.1"),
    "CONNECT to an authority": ask(LENGTH, start=b"CONNECT other:443 HTTP/1.1"),
    "a star that no OPTIONS asks for": ask(LENGTH, start=b"POST * HTTP/1.1"),
    # Another protocol.
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/1.1 in lower case": ask(LENGTH, start=CHAT[:-8] + b"http/1.1"),
    "HTTP/1.2": ask(LENGTH, start=CHAT[:-1] + b"2"),
    "HTTP/11": ask(LENGTH, start=CHAT[:-2] + b"1"),
    "HTTP/2 in the first line": ask(LENGTH, start=CHAT[:-3] + b"2"),
    "HTTP/1.1 and a space": ask(LENGTH, start=CHAT + b" "),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    "a TLS hello": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(64),
    "the PROXY protocol, in text": b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n" + ask(LENGTH),
    "the PROXY protocol, in bytes": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12) + ask(LENGTH),
    "a byte order mark before": b"\xef\xbb\xbf" + ask(LENGTH),
    "a null before": b"\0" + ask(LENGTH),
    "a space before": b" " + ask(LENGTH),
    "a tab behind the method": b"POST\t" + ask(LENGTH)[5:],
    "a method in lower case": b"post" + ask(LENGTH)[4:],
    "a method that nobody knows": b"BREW" + ask(LENGTH)[4:],
    # Too much.
    "a target of 600 KB": get(b"/" + b"a" * LONG),
    "a header of 600 KB": get(b"/healthz", b"X: " + b"a" * LONG),
    "a name of 600 KB": get(b"/healthz", b"a" * LONG + b": x"),
    "101 headers": get(b"/healthz", *[b"X-%d: y" % n for n in range(100)]),
    "an extension of 600 KB": ask(CHUNKED, body=b"5;" + b"a" * LONG),
    "trailers of 600 KB": ask(CHUNKED, body=CHUNK + b"0\r\nX: " + b"a" * LONG),
    "101 trailers": ask(CHUNKED, body=CHUNK + b"0\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(101))),
    "two expectations": ask(LENGTH, b"Expect: 100-continue", b"Expect: 100-continue"),
}

_REFUSED: dict[str, bytes] = {
    "two keys": ask(LENGTH, b"authorization: Bearer tf_" + CANARY.encode()),
    "two kinds of keys that differ": ask(LENGTH, b"x-api-key: tf_" + CANARY.encode()),
    "a data class twice": ask(LENGTH, b"X-TerraFlow-Data-Class: public", b"x-terraflow-data-class: restricted"),
    "a list of data classes": ask(LENGTH, b"X-TerraFlow-Data-Class: public, restricted"),
    "a header of ours that is none": ask(LENGTH, b"X-TerraFlow-Tenant: umbra"),
    "a type of content twice": ask(LENGTH, b"Content-Type: application/json", b"Content-Type: application/json"),
    "an idempotency key twice": ask(LENGTH, b"Idempotency-Key: a", b"Idempotency-Key: b"),
    "an encoding of content twice": ask(LENGTH, b"Content-Encoding: gzip", b"Content-Encoding: identity"),
    "a path with dots": ask(LENGTH, start=b"POST /v1/x/../chat/completions HTTP/1.1"),
    "a path with a dot": ask(LENGTH, start=b"POST /v1/./chat/completions HTTP/1.1"),
    "a path with dots and a semicolon": ask(LENGTH, start=b"POST /v1/x/..;/chat/completions HTTP/1.1"),
    "a path with encoded dots": ask(LENGTH, start=b"POST /v1/x/%2e%2e/chat/completions HTTP/1.1"),
    "a path with an encoded slash": ask(LENGTH, start=b"POST /v1/chat%2Fcompletions HTTP/1.1"),
    "a path that is encoded twice": ask(LENGTH, start=b"POST /v1/chat%252fcompletions HTTP/1.1"),
    "a path with an overlong slash": ask(LENGTH, start=b"POST /v1/chat%c0%afcompletions HTTP/1.1"),
    "a path with an encoded null": ask(LENGTH, start=b"POST /v1/chat/completions%00 HTTP/1.1"),
    "a path with an encoded letter": ask(LENGTH, start=b"POST /v1/ch%61t/completions HTTP/1.1"),
    "a path with a backslash": ask(LENGTH, start=b"POST /v1\\chat\\completions HTTP/1.1"),
    "a path with two slashes": ask(LENGTH, start=b"POST /v1//chat/completions HTTP/1.1"),
    "a path that begins with two": ask(LENGTH, start=b"POST //plane/v1/chat/completions HTTP/1.1"),
}

_ABSENT: dict[str, bytes] = {
    "a path with a semicolon": ask(LENGTH, start=b"POST /v1/chat/completions;a=b HTTP/1.1"),
    "a path in another case": ask(LENGTH, start=b"POST /v1/CHAT/completions HTTP/1.1"),
    "a path with a slash more": ask(LENGTH, start=b"POST /v1/chat/completions/ HTTP/1.1"),
    "an absolute target without a path": ask(LENGTH, start=b"POST http://plane HTTP/1.1"),
    "a method that the path does not have": ask(LENGTH, start=b"PUT /v1/chat/completions HTTP/1.1"),
    "a method that a header asks for": ask(
        LENGTH, b"X-HTTP-Method-Override: POST", start=b"GET /v1/chat/completions HTTP/1.1"
    ),
    "a path that a header asks for": ask(
        LENGTH, b"X-Original-URL: /v1/chat/completions", b"X-Rewrite-URL: /healthz", start=b"POST /v1/nothing HTTP/1.1"
    ),
}

_SERVED: dict[str, bytes] = {
    "a length": ask(LENGTH),
    "names in capitals": ask(b"CONTENT-LENGTH: %d" % len(BODY), b"CONTENT-TYPE: application/json", host=b"HOST: plane"),
    "no space behind a colon": ask(b"Content-Length:%d" % len(BODY), host=b"Host:plane"),
    "much space around a value": ask(b"Content-Length: \t %d \t " % len(BODY)),
    "a length with noughts before": ask(b"Content-Length: 000%d" % len(BODY)),
    "chunks": ask(CHUNKED, body=CHUNK + END),
    "chunked in capitals": ask(b"Transfer-Encoding: CHUNKED", body=CHUNK + END),
    "chunks of a byte": ask(CHUNKED, body=b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + END),
    "a size with noughts before": ask(CHUNKED, body=b"0000" + CHUNK + b"000\r\n\r\n"),
    "a size in capitals": ask(CHUNKED, body=b"%X\r\n%b\r\n" % (len(BODY), BODY) + END),
    "an extension": ask(CHUNKED, body=b"%x;a=b\r\n%b\r\n" % (len(BODY), BODY) + END),
    "trailers, which are dropped": ask(
        CHUNKED, body=CHUNK + b"0\r\nAuthorization: x\r\nX-TerraFlow-Data-Class: x\r\n\r\n"
    ),
    "a query": ask(LENGTH, start=b"POST /v1/chat/completions?a=/../%2f HTTP/1.1"),
    "an absolute target": ask(LENGTH, start=b"POST http://plane/v1/chat/completions HTTP/1.1"),
    "a host with a port": ask(LENGTH, host=b"Host: plane:8080"),
    "a host by its address": ask(LENGTH, host=b"Host: [::1]:8080"),
    "an Upgrade to HTTP/2": ask(
        b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk", LENGTH
    ),
    "an Upgrade to WebSocket": ask(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", LENGTH),
    "a length's name with an underscore": ask(LENGTH, b"Content_Length: 4"),
    "a coding's name with an underscore": ask(LENGTH, b"Transfer_Encoding: chunked"),
    "headers that proxies write": ask(
        LENGTH, b"X-Forwarded-For: 192.0.2.1", b"X-Forwarded-Host: other", b"Forwarded: for=192.0.2.1"
    ),
    "a Connection that names other headers": ask(LENGTH, b"Connection: keep-alive, Authorization, Content-Length"),
    "a value of eight bits": ask(LENGTH, b"X: caf\xe9"),
}

_LENIENT: dict[str, bytes] = {
    "an empty line before": b"\r\n" + ask(LENGTH),
    "two spaces behind the method": b"POST  " + ask(LENGTH)[5:],
}

AMBIGUOUS = [Row(name, raw + NEXT, (400,), open=False) for name, raw in _TORN.items()]
CLEAR = [
    *(Row(name, raw + NEXT, (400, 200), open=True) for name, raw in _REFUSED.items()),
    *(Row(name, raw + NEXT, (404, 200), open=True) for name, raw in _ABSENT.items()),
    *(Row(name, raw + NEXT, (200, 200), open=True, governed=1) for name, raw in _SERVED.items()),
    *(Row(name, raw + NEXT, (200, 200), open=True, governed=1) for name, raw in _LENIENT.items()),
    Row("a body that looks like a request", ask(_hidden(), body=NEXT) + NEXT, (400, 200), open=True),
    Row("a GET with a body that looks like one", get(b"/healthz", _hidden()) + NEXT + NEXT, (200, 200), open=True),
    Row("a GET with chunks", get(b"/healthz", CHUNKED) + CHUNK + END + NEXT, (200, 200), open=True),
    Row("a length of nought", ask(b"Content-Length: 0", body=b"") + NEXT, (400, 200), open=True),
    Row(
        "an Upgrade with a request for a body",
        get(b"/healthz", b"Connection: Upgrade", b"Upgrade: h2c", _hidden()) + NEXT + NEXT,
        (200, 200),
        open=True,
    ),
    Row("three in one", ask(LENGTH) + ask(CHUNKED, body=CHUNK + END) + NEXT, (200, 200, 200), open=True, governed=2),
    Row("sixteen in one", NEXT * 16, (200,) * 16, open=True),
]
LAST = [
    Row("Connection: close", ask(LENGTH, b"Connection: close") + NEXT, (200,), open=False, governed=1),
    Row(
        "Connection: close among others",
        ask(LENGTH, b"Connection: keep-alive, CLOSE") + NEXT,
        (200,),
        open=False,
        governed=1,
    ),
    Row("HTTP/1.0", ask(LENGTH, start=CHAT[:-1] + b"0") + NEXT, (200,), open=False, governed=1),
    Row(
        "HTTP/1.0 without a host", ask(LENGTH, start=CHAT[:-1] + b"0", host=b"") + NEXT, (200,), open=False, governed=1
    ),
    Row(
        "a good one before an ambiguous one",
        ask(LENGTH) + ask(LENGTH, LENGTH) + NEXT,
        (200, 400),
        open=False,
        governed=1,
    ),
    Row("an expectation", ask(LENGTH, b"Expect: 100-continue"), (200,), open=True, governed=1),
    Row("an expectation that nobody knows", ask(LENGTH, b"Expect: 200-ok"), (200,), open=True, governed=1),
]
LENIENT = frozenset(_LENIENT)
ROWS = [*AMBIGUOUS, *CLEAR, *LAST]
