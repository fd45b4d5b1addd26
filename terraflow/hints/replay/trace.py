"""Mooncake's trace format: one JSON object a line, {timestamp ms, input_length, output_length, hash_ids}.

1. `hash_ids` name the prompt's blocks of 512 tokens, in order; the last may be partial. An id stands for its block
   and all before it, so that equal ids are equal prefixes.
2. A line that is not such an object is an error that names its line. Empty lines are passed over.
3. Requests come in order of time; a line that goes back is an error.

Format: github.com/kvcache-ai/Mooncake, FAST25-release/traces.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

BLOCK_TOKENS = 512
INPUT_TOKENS_MAX = 1 << 24


class TraceFault(ValueError):
    """A line that cannot be used. `line` counts from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


class TraceRequest(msgspec.Struct, frozen=True, gc=False):
    """One line of a trace."""

    timestamp: float
    """Milliseconds since the trace began."""
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


_DECODER = msgspec.json.Decoder(TraceRequest)


def parse_trace(lines: Iterable[bytes]) -> list[TraceRequest]:
    """All requests. Raises TraceFault for the first line that is none, and for a trace without any."""
    requests: list[TraceRequest] = []
    latest, number = 0.0, 1
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise TraceFault(number, str(fault)) from None
        what = _fault(request, latest)
        if what is not None:
            raise TraceFault(number, what)
        latest = request.timestamp
        requests.append(request)
    if not requests:
        raise TraceFault(number, "the trace holds no request")
    return requests


def _fault(request: TraceRequest, latest: float) -> str | None:
    if not request.timestamp >= latest:
        return f"`timestamp` {request.timestamp:g} lies before the line above ({latest:g})"
    if not 0 < request.input_length <= INPUT_TOKENS_MAX:
        return f"`input_length` {request.input_length} is not within 1 and {INPUT_TOKENS_MAX}"
    if request.output_length < 0:
        return f"`output_length` {request.output_length} is negative"
    blocks = -(-request.input_length // BLOCK_TOKENS)
    if len(request.hash_ids) != blocks:
        return f"{len(request.hash_ids)} `hash_ids` for {request.input_length} tokens: {blocks} blocks of 512 expected"
    if len(set(request.hash_ids)) != blocks or not all(0 <= name < 1 << 63 for name in request.hash_ids):
        return "`hash_ids` names a block twice, or with a negative or too great number"
    return None
