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

from terraflow.contracts.words import ToolName, says
from terraflow.ports.upstream import Failure

Tokens = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Millis = Annotated[int, Meta(ge=0, le=3_600_000)]
Seconds = Annotated[int, Meta(ge=0, le=86_400)]
ChunkCount = Annotated[int, Meta(ge=1, le=100_000)]


class FinishReason(StrEnum):
    """Why an answer ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


class SimulatedUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Token counts to report instead of counted ones."""

    input: Annotated[Tokens | None, says("Null counts the request's size, four bytes a token.")] = None
    output: Annotated[Tokens | None, says("Null counts the answer's size, four bytes a token.")] = None
    cached_input: Annotated[Tokens, says("Tokens read from the prompt cache, beside `input`.")] = 0
    cache_write: Annotated[Tokens, says("Tokens written to the prompt cache, beside `input`.")] = 0
    reasoning: Annotated[Tokens, says("Tokens of reasoning, beside `output`.")] = 0


class SimulatedToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool call that the answer makes."""

    name: Annotated[ToolName, says("The tool.")]
    arguments: Annotated[str, says("Its arguments, as JSON text.")] = "{}"


class Act(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One call's behaviour: answer, stall, or fail with a class, after a delay."""

    text: Annotated[
        str | None,
        says("What it answers; null is a plain sentence, or the smallest instance of what was asked for."),
    ] = None
    reasoning: Annotated[str | None, says("What it thinks aloud before the answer.")] = None
    tool_calls: Annotated[tuple[SimulatedToolCall, ...], says("The tools it calls.")] = ()
    finish_reason: Annotated[FinishReason | None, says("Why it ends; null says what is true.")] = None
    fail: Annotated[Failure | None, says("The failure it ends in.")] = None
    fail_after_chunks: Annotated[Tokens, says("How many chunks a stream sends before it fails.")] = 0
    fail_fields: Annotated[tuple[str, ...], says("The request fields that the failure names.")] = ()
    fail_status: Annotated[int | None, says("The HTTP status that the failure names.")] = None
    retry_after_s: Annotated[Seconds | None, says("When the failure invites a retry, in whole seconds.")] = None
    latency_ms: Annotated[Millis, says("How long the first chunk, or the whole answer, takes.")] = 0
    chunks: Annotated[ChunkCount, says("Into how many chunks a stream cuts the text.")] = 8
    chunk_interval_ms: Annotated[Millis, says("How long each further chunk takes.")] = 0
    stall_after_chunks: Annotated[
        Tokens | None, says("After how many chunks a stream falls silent; a whole answer then never comes.")
    ] = None
    usage: Annotated[SimulatedUsage | None, says("The usage it reports; null counts sizes.")] = None
    usage_reported: Annotated[bool, says("Whether it reports its usage at all.")] = True


Acts = Annotated[tuple[Act, ...], Meta(min_length=1)]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The acts of a simulated capability, in order."""

    acts: Annotated[Acts, says("The first call performs the first; the last repeats.")] = (Act(),)
