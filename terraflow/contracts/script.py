"""What a simulated capability does, written in its own definition and never in a caller's text.

1. A script is a list of acts; the n-th call of the capability performs the n-th act, and the last act repeats.
2. Nothing in a script depends on the content of a request, except that an answer may echo its size, and that a
   schema or a required tool of the request is given its smallest instance when the act names no answer of its own.
3. `fail` alone fails before the first chunk. With `fail_after_chunks` a stream first sends so many chunks; a whole
   answer just fails. `fail: cut_off` is how a stream is cut midway.
4. `stall_after_chunks` stops sending without ending, until the call's own deadline; a whole answer never comes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from terraflow.ports.upstream import Failure

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Millis = Annotated[int, Meta(ge=0, le=3_600_000)]


class FinishReason(StrEnum):
    """Why an answer ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


class SimulatedUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Token counts to report; `input` and `output` are counted from sizes when they are absent."""

    input: Count | None = None
    output: Count | None = None
    cached_input: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0


class SimulatedToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool call the answer makes; `arguments` is JSON text."""

    name: str
    arguments: str = "{}"


class Act(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One call's behaviour: answer, stall, or fail with a class, after a delay."""

    text: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[SimulatedToolCall, ...] = ()
    finish_reason: FinishReason | None = None
    fail: Failure | None = None
    fail_after_chunks: Count = 0
    fail_fields: tuple[str, ...] = ()
    fail_status: int | None = None
    retry_after_s: float | None = None
    latency_ms: Millis = 0
    chunks: Annotated[int, Meta(ge=1, le=100_000)] = 8
    chunk_interval_ms: Millis = 0
    stall_after_chunks: Count | None = None
    usage: SimulatedUsage | None = None
    usage_reported: bool = True


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The acts of a simulated capability, in order."""

    acts: Annotated[tuple[Act, ...], Meta(min_length=1)] = (Act(),)
