"""The model behind the plane when clients that others wrote call it: an OpenAI-compatible engine that answers what it
is asked.

1. It calls the function that it is made to call, or the first one offered, and answers a tool's result in words.
   `Mended` it calls as nobody can, until it is told so by the result of that call.
2. A schema, also one in a system prompt, gets an object of it, anything else a word, which a stream says in two pieces.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.harness.upstreams import DONE, END, USED, chunk, completion, flow, text
from tests.providers.vendor import Reply, Request, says

Json = dict[str, Any]

SAID = ("Certain", "ly.")
AFTER_TOOLS = ("Warm ", "there.")
TOTAL: Json = {"total": 5, "items": ["a", "b"]}
AMISS: dict[str, Json] = {"Mended": {"total": "a lot", "items": ["a", "b"]}}
ARGUMENTS: dict[str, Json] = {"weather": {"city": "Pune"}, "IterableTotal": {"tasks": [TOTAL, TOTAL]}}


async def engine(writer: asyncio.StreamWriter, request: Request) -> None:
    """A vendor's reply to any chat request."""
    body = request.body
    name = _called(body)
    reply = _calls(name, body) if name else _speaks(_words(body), body)
    await reply(writer, request)


def _called(body: Json) -> str | None:
    offered = [tool["function"]["name"] for tool in body.get("tools") or ()]
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        return str(choice["function"]["name"])
    over = choice == "none" or body["messages"][-1]["role"] == "tool"
    return offered[0] if offered and not over else None


def _words(body: Json) -> tuple[str, ...]:
    if body["messages"][-1]["role"] == "tool":
        return AFTER_TOOLS
    first = body["messages"][0]
    if "response_format" in body or (first["role"] == "system" and "json_schema" in str(first["content"])):
        whole = json.dumps(TOTAL)
        return whole[:9], whole[9:]
    return SAID


def _speaks(words: tuple[str, ...], body: Json) -> Reply:
    if body.get("stream"):
        return flow(*(text(word) for word in words), END, USED, DONE)
    return says(200, completion("".join(words)))


def _calls(name: str, body: Json) -> Reply:
    told = any(message["role"] == "tool" for message in body["messages"])
    known = ARGUMENTS if told else ARGUMENTS | AMISS
    arguments = json.dumps(known.get(name, TOTAL))
    call: Json = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": ""}}
    if not body.get("stream"):
        call["function"]["arguments"] = arguments
        return says(200, completion(None, finish_reason="tool_calls", tool_calls=[call]))
    begun = chunk({"role": "assistant", "tool_calls": [{"index": 0, **call}]})
    halves = (arguments[:5], arguments[5:])
    more = [chunk({"tool_calls": [{"index": 0, "function": {"arguments": half}}]}) for half in halves]
    return flow(begun, *more, chunk({}, "tool_calls"), USED, DONE)
