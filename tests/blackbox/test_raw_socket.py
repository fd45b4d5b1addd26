"""The corpus of the edge over raw sockets, in front of one plane: what must be heard is heard, and nothing else.

A reader that is not ours, h11, reads the same bytes: where it ends a request elsewhere than the plane does, the plane
may not have served it.
"""

from __future__ import annotations

import h11
import pytest

from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CANARY
from tests.harness.edge import Connection
from tests.harness.raw_corpus import AMBIGUOUS, BODY, CLEAR, KEY, LAST, LENIENT, NEXT, ROWS, Row

QUIET_S = 0.02


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(bundle.document(purpose("plain", sim("one"))))


def governed(site: Site) -> int:
    [(count,)] = site.folder.rows("SELECT count(*) FROM leaf WHERE kind = 'intent'")
    return int(count)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_what_comes_of_it(row: Row, site: Site, connection: Connection) -> None:
    before = governed(site)
    connection.send(row.raw.replace(KEY, site.caller.api_key.encode()))
    heard = [connection.hear() for _ in row.heard]
    assert tuple(one.status for one in heard) == row.heard
    assert not any(CANARY.encode() in one.body for one in heard if one.status != 200)
    assert (heard[-1].headers.get("connection") == "close") is not row.open
    if row.open:
        assert connection.silent(QUIET_S)
        assert connection.ask(NEXT).body == b'{"status":"ok"}'
    else:
        assert connection.closed()
    assert governed(site) == before + row.governed


def read_by_h11(raw: bytes) -> list[bytes]:
    """The bodies of the requests that h11 reads before it finds fault or has read all."""
    reader, bodies, body = h11.Connection(h11.SERVER), list[bytes](), b""
    reader.receive_data(raw)
    while True:
        try:
            event = reader.next_event()
        except h11.RemoteProtocolError:
            return bodies
        if isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            bodies.append(body)
            body = b""
            if reader.their_state is not h11.DONE:
                return bodies
            reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            reader.send(h11.EndOfMessage())
            if reader.our_state is not h11.DONE:
                return bodies
            reader.start_next_cycle()
        elif event is h11.NEED_DATA or event is h11.PAUSED:
            return bodies


@pytest.mark.parametrize("row", [row for row in ROWS if row.governed], ids=lambda row: row.name)
def test_what_is_governed_is_read_alike_by_a_stranger(row: Row) -> None:
    read = read_by_h11(row.raw)
    assert read[: row.governed] == [BODY] * row.governed or (read == [] and row.name in LENIENT)


def test_the_corpus_is_what_it_says() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) >= 120
    assert not any(row.governed or row.open for row in AMBIGUOUS)
    assert all(row.open for row in CLEAR)
    assert len(AMBIGUOUS) + len(CLEAR) + len(LAST) == len(ROWS)
