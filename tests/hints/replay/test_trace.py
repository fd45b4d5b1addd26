"""Mooncake's format: what is read, and which line is refused and why."""

from __future__ import annotations

import pytest

from terraflow.hints.replay.trace import TraceFault, TraceRequest, parse_trace

GOOD = b'{"timestamp": 27, "input_length": 700, "output_length": 5, "hash_ids": [0, 46]}\n'


def test_a_line_is_a_request() -> None:
    assert parse_trace([GOOD, b"\n", GOOD]) == [TraceRequest(27, 700, 5, (0, 46))] * 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "truncated"),
        (b"[1]", "Expected `object`"),
        (b'{"timestamp": 30}', "input_length"),
        (b'{"timestamp": 30, "input_length": "7", "output_length": 5, "hash_ids": [0]}', r"\$.input_length"),
        (b'{"timestamp": 3, "input_length": 7, "output_length": 5, "hash_ids": [0]}', "before the line above"),
        (b'{"timestamp": 30, "input_length": 0, "output_length": 5, "hash_ids": []}', "`input_length` 0"),
        (b'{"timestamp": 30, "input_length": 7, "output_length": -5, "hash_ids": [0]}', "negative"),
        (b'{"timestamp": 30, "input_length": 7, "output_length": 5, "hash_ids": [0, 1]}', "1 blocks of 512"),
        (b'{"timestamp": 30, "input_length": 1024, "output_length": 5, "hash_ids": [3, 3]}', "twice"),
        (b'{"timestamp": 30, "input_length": 7, "output_length": 5, "hash_ids": [-3]}', "negative"),
        (b'{"timestamp": 1e999, "input_length": 7, "output_length": 5, "hash_ids": [3]}', "line 3"),
        (b'\xff\xfe{"timestamp": 30}', "line 3"),
    ],
)
def test_another_line_is_refused_by_its_number(line: bytes, said: str) -> None:
    with pytest.raises(TraceFault, match=said) as fault:
        parse_trace([GOOD, b"  \n", line])
    assert fault.value.line == 3
    assert str(fault.value).startswith("line 3: ")


@pytest.mark.parametrize("lines", [[], [b"\n", b"\n"]])
def test_a_trace_without_a_request_is_refused(lines: list[bytes]) -> None:
    with pytest.raises(TraceFault, match="no request"):
        parse_trace(lines)
