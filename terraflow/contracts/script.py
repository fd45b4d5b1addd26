"""What a simulated capability does, written in its own definition and never in a caller's text.

1. A script is a list of acts; the n-th call of the capability performs the n-th act, and the last act repeats.
2. Nothing in a script depends on the content of a request, except that an answer may echo its size.
"""

from __future__ import annotations

from typing import Any

import msgspec


class SimulatedUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Token counts to report instead of counted ones."""

    input: int | None = None
    output: int | None = None
    cached_input: int = 0
    cache_write: int = 0
    reasoning: int = 0


class SimulatedToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool call the answer makes; `arguments` is JSON text."""

    name: str
    arguments: str = "{}"


class Act(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One call's behaviour: answer, or fail with a class, after a delay, perhaps cut off after some chunks."""

    text: str | None = None
    tool_calls: tuple[SimulatedToolCall, ...] = ()
    fail: str | None = None
    fail_detail: dict[str, Any] = {}
    retry_after_s: float | None = None
    latency_ms: int = 0
    chunks: int = 8
    chunk_interval_ms: int = 0
    cut_after_chunks: int | None = None
    stall_after_chunks: int | None = None
    usage: SimulatedUsage | None = None
    usage_reported: bool = True
    finish_reason: str = "stop"


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The acts of a simulated capability, in order."""

    acts: tuple[Act, ...] = (Act(),)
