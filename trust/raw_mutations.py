"""Requests that are nearly right: none is served that another reader takes for a different one.

    python -m trust.raw_mutations [--count 20000] [--seed 0]

Whole requests are mutated byte by byte and by pieces that smugglers use, a second request is put behind each, and all
goes to the edge's connection over a socket, in front of a handler that says what it received. h11, a reader of other
hands, is given the same bytes. What the edge served must be what h11 read. The edge with a lenient parser must fail the
same test.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence

import h11

from tests.harness.edge import Connection, Edge

BODY = b'{"a": "b"}'
NEXT = b"GET /next HTTP/1.1\r\nHost: plane\r\nConnection: close\r\n\r\n"
WHOLE = (
    b"POST /a HTTP/1.1\r\nHost: plane\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n" + BODY,
    b'POST /a HTTP/1.1\r\nHost: plane\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n6\r\n: "b"}\r\n0\r\n\r\n',
    b"POST /a HTTP/1.1\r\nHost: plane\r\nTransfer-Encoding: chunked\r\n\r\na;x=y\r\n" + BODY + b"\r\n0\r\nX: y\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: plane\r\nX: y\r\nConnection: keep-alive\r\n\r\n",
)
PIECES = (
    b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b"\x0b", b"\x0c", b"\x80", b"\xff", b":", b";", b",", b"0", b"1", b"a",
    b"F", b"-", b"+", b"_", b"x", b" \r\n", b"\r\n ", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Host: x\r\n", b"chunked", b"identity", b"GET ", b"HTTP/1.0", b"?", b"#", b"@", b"Expect: 100-continue\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Connection: close\r\n",
)  # fmt: skip
_SPACES = re.compile(rb"\A([A-Z]+) +(\S+) +(?=HTTP/)")
QUIET_S = 0.15
"""How long nothing must come before all has come."""

Reading = tuple[str, bytes]
"""A request's method and body."""


def mutated(number: int) -> bytes:
    """The request of a number, with another behind it."""
    chance = random.Random(number)
    raw = chance.choice(WHOLE)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(raw) + 1)
        what = chance.randrange(4)
        if what == 0:
            raw = raw[:at] + chance.choice(PIECES) + raw[at:]
        elif what == 1:
            raw = raw[:at] + raw[at + chance.choice((1, 1, 2, 3)) :]
        elif what == 2:
            raw = raw[:at] + bytes((chance.randrange(256),)) + raw[at + 1 :]
        else:
            end = at + chance.randrange(1, 12)
            raw = raw[:end] + raw[at:end] + raw[end:]
    return raw + NEXT


def read_by_h11(raw: bytes) -> list[Reading]:
    """The requests that h11 reads until it finds fault. What it alone refuses is set right before: empty lines, and
    more than one space in the request line. An upgrade that is offered is not taken."""
    readings = list[Reading]()
    while raw:
        reader = h11.Connection(h11.SERVER)
        reader.receive_data(_SPACES.sub(rb"\1 \2 ", raw.lstrip(b"\r\n")))
        reading = _read_one(reader)
        if reading is None:
            break
        readings.append(reading)
        if reader.their_state not in (h11.DONE, h11.MIGHT_SWITCH_PROTOCOL):
            break
        raw, _ = reader.trailing_data
    return readings


def _read_one(reader: h11.Connection) -> Reading | None:
    method, body = "", b""
    while True:
        try:
            event = reader.next_event()
        except h11.RemoteProtocolError:
            return None
        if isinstance(event, h11.Request):
            method = event.method.decode()
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return method, body
        else:
            return None


def served(connection: Connection, raw: bytes) -> list[Reading]:
    """The requests that the edge handed on, as its handler received them."""
    connection.socket.settimeout(QUIET_S)
    connection.send(raw)
    readings = []
    try:
        while True:
            heard = connection.hear()
            if heard.status == 200:
                said = heard.json
                readings.append((said["method"], said["body"].encode("latin-1")))
            if heard.headers.get("connection") == "close":
                return readings
    except (TimeoutError, AssertionError):
        # Nothing more comes, or the other end has closed.
        return readings


def verdict(ours: list[Reading], theirs: list[Reading]) -> str:
    """`alike`, `refused` by the edge alone, or `differs`."""
    if ours == theirs:
        return "alike"
    return "refused" if ours == theirs[: len(ours)] else "differs"


def compare(edge: Edge, numbers: range) -> tuple[Counter[str], list[str]]:
    """How often which verdict, and the requests that differ."""
    verdicts, found = Counter[str](), list[str]()
    for number in numbers:
        raw = mutated(number)
        with edge.connect() as connection:
            ours = served(connection, raw)
        theirs = read_by_h11(raw)
        said = verdict(ours, theirs)
        verdicts[said] += 1
        if said == "differs":
            found.append(f"{number}: {raw!r} was served as {ours}, and read as {theirs}")
    return verdicts, found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    numbers = range(options.seed, options.seed + options.count)
    begun = time.monotonic()
    with Edge() as edge:
        verdicts, found = compare(edge, numbers)
    with Edge(lenient=True) as edge:
        _, planted = compare(edge, numbers[: options.count // 10])
    print("\n".join(found[:10]))
    print(", ".join(f"{number} {said}" for said, number in verdicts.most_common()))
    print(f"{len(found)} differ; with a lenient parser {len(planted)} in a tenth ({time.monotonic() - begun:.0f} s)")
    return 0 if not found and planted else 1


if __name__ == "__main__":
    sys.exit(main())
