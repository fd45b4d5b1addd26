"""A model that is not there: it follows its script, offline and deterministically.

1. The n-th call performs the n-th act of the script, the last act again and again. A call takes its act when it is
   made.
2. It takes every field of a request, as a vendor that knows them all would; none changes the answer, except that a
   schema, a required tool, the number of choices and the output limit are kept.
3. Unscripted text depends on the request's size and on nothing else of it. Tokens are counted from sizes, four
   bytes a token, and no choice is longer than the output limit.
4. Whatever takes longer than the call's `timeout_s` fails with TIMEOUT, at that time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import msgspec

from terraflow.contracts.script import Act, Script, SimulatedToolCall, SimulatedUsage
from terraflow.ports.runtime import Clock
from terraflow.ports.upstream import Answer, Call, Chunk, Failure, ProviderFailure, Usage
from terraflow.providers.instance import smallest_instance

BYTES_PER_TOKEN = 4

# fmt: off
_REACHED: dict[Failure, bool] = {
    Failure.CONNECT:           False,
    Failure.TIMEOUT:           True,
    Failure.CUT_OFF:           True,
    Failure.RATE_LIMITED:      False,
    Failure.OVERLOADED:        False,
    Failure.SERVER_ERROR:      True,
    Failure.AUTHENTICATION:    False,
    Failure.MODEL_NOT_FOUND:   False,
    Failure.MALFORMED:         True,
    Failure.REJECTED_CONTENT:  False,
    Failure.MISMATCH:          False,
    Failure.UNSUPPORTED_FIELD: False,
    Failure.CONTENT_FILTERED:  True,
}
# fmt: on

_to_json = msgspec.json.Encoder().encode


class _Play(msgspec.Struct):
    """An act as one call performs it: what is said, and what it counts."""

    act: Act
    text: str | None
    tool_calls: tuple[SimulatedToolCall, ...]
    finish_reason: str
    usage: Usage


class SimulatedProvider:
    """A capability without a vendor; see `ports.upstream.Provider`."""

    def __init__(self, script: Script | None, clock: Clock) -> None:
        self._acts = (script or Script()).acts
        self._clock = clock
        self._calls = 0

    async def complete(self, call: Call) -> Answer:
        """The act's answer. Raises the act's failure as ProviderFailure."""
        play = self._next(call)
        act, left_s = play.act, call.timeout_s
        if act.latency_ms:
            await self._wait(act.latency_ms / 1000, left_s)
        if act.stall_after_chunks is not None:
            await self._wait(left_s + 1, left_s - act.latency_ms / 1000)
        if act.fail is not None:
            raise _failure(act, act.fail)
        message: dict[str, Any] = {"role": "assistant", "content": play.text, "refusal": None}
        if act.reasoning is not None:
            message["reasoning_content"] = act.reasoning
        if play.tool_calls:
            message["tool_calls"] = [_called(call, number) for number, call in enumerate(play.tool_calls)]
        choices = [
            {"index": index, "message": message, "logprobs": None, "finish_reason": play.finish_reason}
            for index in range(call.request.choices)
        ]
        return Answer(choices=choices, usage=_reported(play, call))

    def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """The act's answer in chunks, its usage last. Raises the act's failure as ProviderFailure."""
        return self._stream(call, self._next(call))

    async def close(self) -> None:
        """Nothing to give back."""

    async def _stream(self, call: Call, play: _Play) -> AsyncIterator[Chunk]:
        act, left_s = play.act, call.timeout_s
        pause_s = act.latency_ms / 1000
        for sent, (delta, finish) in enumerate(_deltas(play)):
            if pause_s:
                await self._wait(pause_s, left_s)
                left_s -= pause_s
            if act.fail is not None and sent == act.fail_after_chunks:
                raise _failure(act, act.fail)
            if act.stall_after_chunks is not None and sent == act.stall_after_chunks:
                await self._wait(left_s + 1, left_s)
            for index in range(call.request.choices):
                yield Chunk(choices=[{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}])
            pause_s = act.chunk_interval_ms / 1000
        if act.fail is not None:
            raise _failure(act, act.fail)
        if act.usage_reported:
            yield Chunk(choices=[], usage=play.usage)

    def _next(self, call: Call) -> _Play:
        act = self._acts[min(self._calls, len(self._acts) - 1)]
        self._calls += 1
        return _rehearse(act, call)

    async def _wait(self, seconds: float, left_s: float) -> None:
        """Wait, but not beyond the call's deadline. Raises TIMEOUT there."""
        await self._clock.sleep(max(0.0, min(seconds, left_s)))
        if seconds >= left_s:
            raise ProviderFailure(Failure.TIMEOUT, reached=True)


def _rehearse(act: Act, call: Call) -> _Play:
    text, tool_calls = act.text, act.tool_calls
    if text is None and not tool_calls:
        tool_calls = _required_call(call.request.document)
        if not tool_calls:
            text = _unscripted_text(call)
    room = call.output_tokens_max * BYTES_PER_TOKEN
    whole = text is None or len(text.encode()) <= room
    if text is not None and not whole:
        text = text.encode()[:room].decode("utf-8", "ignore")
    finish = "tool_calls" if tool_calls else "stop" if whole else "length"
    if act.finish_reason is not None:
        finish = act.finish_reason.value
    return _Play(act, text, tool_calls, finish, _count(act, call, text, tool_calls))


def _unscripted_text(call: Call) -> str:
    schema = call.request.output_schema
    if schema is not None:
        return _to_json(smallest_instance(schema)).decode()
    form = call.request.document.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_object":
        return "{}"
    return f"This is a simulated answer to a request of {call.request.size_bytes} bytes."


def _required_call(document: dict[str, Any]) -> tuple[SimulatedToolCall, ...]:
    """The call that `tool_choice` demands, with the smallest arguments that its parameters allow."""
    functions = {t["function"]["name"]: t["function"] for t in document.get("tools") or () if "function" in t}
    choice = document.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = choice["function"]["name"]
    elif choice == "required" and functions:
        name = next(iter(functions))
    else:
        return ()
    parameters = functions.get(name, {}).get("parameters") or {"type": "object"}
    arguments = smallest_instance(parameters)
    return (SimulatedToolCall(name=name, arguments=_to_json(arguments).decode()),)


def _tokens(size_bytes: int) -> int:
    return -(-size_bytes // BYTES_PER_TOKEN)


def _count(act: Act, call: Call, text: str | None, tool_calls: tuple[SimulatedToolCall, ...]) -> Usage:
    said = len((text or "").encode()) + sum(len(c.name) + len(c.arguments.encode()) for c in tool_calls)
    reported = act.usage or SimulatedUsage(reasoning=_tokens(len((act.reasoning or "").encode())))
    return Usage(
        input=_tokens(call.request.size_bytes) if reported.input is None else reported.input,
        cached_input=reported.cached_input,
        cache_write=reported.cache_write,
        output=(_tokens(said) if reported.output is None else reported.output) * call.request.choices,
        reasoning=reported.reasoning * call.request.choices,
    )


def _reported(play: _Play, call: Call) -> Usage:
    if play.act.usage_reported:
        return play.usage
    return Usage.counted(call.request, len((play.text or "").encode()))


def _called(call: SimulatedToolCall, number: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def _deltas(play: _Play) -> list[tuple[dict[str, Any], str | None]]:
    """The deltas of one choice, each with its finish reason; the text in as many as the act says."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if play.act.reasoning is not None:
        deltas.append({"reasoning_content": play.act.reasoning})
    if play.text:
        pieces = min(play.act.chunks, len(play.text))
        bounds = [len(play.text) * piece // pieces for piece in range(pieces + 1)]
        deltas += [{"content": play.text[a:b]} for a, b in pairwise(bounds)]
    for number, call in enumerate(play.tool_calls):
        begun = _called(SimulatedToolCall(name=call.name, arguments=""), number)
        deltas.append({"tool_calls": [{"index": number, **begun}]})
        deltas.append({"tool_calls": [{"index": number, "function": {"arguments": call.arguments}}]})
    return [(delta, None) for delta in deltas] + [({}, play.finish_reason)]


def _failure(act: Act, failure: Failure) -> ProviderFailure:
    return ProviderFailure(
        failure,
        reached=_REACHED[failure] or act.fail_after_chunks > 0,
        retry_after_s=act.retry_after_s,
        fields=act.fail_fields,
        status=act.fail_status,
    )
