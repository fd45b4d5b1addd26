"""Events from bytes: any split gives the same, the cost is linear, what is held is bounded."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from terraflow.providers.sse import EventParser, EventTooLarge

_PIECES = st.sampled_from(
    [b"data: ", b"data:", b"data", b"x", b"{}", b": note", b"event: a", b"id: 1", b"\n", b"\r", b"\r\n", b"\n\n",
     b" ", b"\xef\xbb\xbf", b"\x00", b"\xff"]
)  # fmt: skip


def _by_the_book(stream: bytes) -> list[bytes]:
    """The standard's algorithm, read line by line with nothing clever; an unfinished last line does not count."""
    if stream.startswith(b"\xef\xbb\xbf"):
        stream = stream[3:]
    lines, line, i = [], b"", 0
    while i < len(stream):
        byte = stream[i : i + 1]
        if byte == b"\r" and i + 1 == len(stream):
            break
        if byte in (b"\r", b"\n"):
            i += 2 if stream[i : i + 2] == b"\r\n" else 1
            lines.append(line)
            line = b""
        else:
            line += byte
            i += 1
    events, data = [], []
    for line in lines:
        if not line:
            if data:
                events.append(b"\n".join(data))
            data = []
            continue
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value[1:] if value.startswith(b" ") else value)
    return events


def _parsed(stream: bytes, cuts: list[int]) -> list[bytes]:
    parser, events, start = EventParser(), [], 0
    for cut in [*sorted(c % (len(stream) + 1) for c in cuts), len(stream)]:
        if cut > start:
            events += parser.feed(stream[start:cut])
            start = cut
    return events


@given(st.lists(_PIECES, max_size=40).map(b"".join), st.lists(st.integers(0, 10_000), max_size=20))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 9, 10])
@example(b"\xef\xbb\xbfdata: a\n\n", [1, 2])
def test_any_split_gives_the_events_of_the_standard(stream: bytes, cuts: list[int]):
    assert _parsed(stream, cuts) == _by_the_book(stream)


def test_one_byte_at_a_time():
    stream = b": hello\n\nevent: x\ndata: 1\ndata: 2\n\ndata:3\r\n\r\n"
    assert _parsed(stream, list(range(len(stream)))) == [b"1\n2", b"3"]


@pytest.mark.parametrize(
    "piece",
    [b"data: " + b"x" * 500, b"x" * 500, b": ping\n", b": ping\n\n", b"data: x\n", b"\n", b"id: 7\n\n", b"\r\n"],
    ids=[
        "endless data line",
        "endless line",
        "comments",
        "spaced comments",
        "endless event",
        "line ends",
        "ids",
        "cr",
    ],
)
def test_a_stream_that_never_ends_an_event_is_ended(piece: bytes):
    parser = EventParser(event_bytes_max=10_000)
    with pytest.raises(EventTooLarge):
        for _ in range(20_000):
            assert parser.feed(piece) == []


def test_an_event_over_the_bound_is_refused_even_in_one_read():
    with pytest.raises(EventTooLarge):
        EventParser(event_bytes_max=100).feed(b"data: " + b"x" * 200 + b"\n\n")


def test_heartbeats_between_events_do_not_add_up():
    parser = EventParser(event_bytes_max=1_000)
    for _ in range(1_000):
        assert parser.feed(b": ping\n\n" * 20) == []
        assert parser.feed(b"data: x\n\n") == [b"x"]


def test_one_byte_reads_of_a_long_line_cost_no_more_than_linear():
    def cost(size: int) -> float:
        parser = EventParser()
        started = time.process_time()
        for _ in range(size):
            parser.feed(b"x")
        return time.process_time() - started

    cost(1_000)
    assert cost(400_000) < 8 * 4 * max(cost(100_000), 0.001)


@pytest.mark.parametrize(
    ("stream", "left"),
    [
        (b"data: a", b"a"),
        (b"data: a\n", b"a"),
        (b"data: a\r", b"a"),
        (b"data: a\ndata: b", b"a\nb"),
        (b"data: a\n\n", b""),
        (b": note", b""),
        (b"", b""),
    ],
)
def test_what_has_begun_and_not_ended_is_given_once(stream: bytes, left: bytes):
    parser = EventParser()
    parser.feed(stream)
    assert parser.rest() == left
    assert parser.rest() == b""
