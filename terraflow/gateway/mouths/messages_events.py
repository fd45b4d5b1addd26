"""A streamed answer as Anthropic's events, in Anthropic's order: `message_start`, for each block its start, its deltas
and its stop, then `message_delta` and `message_stop`.

1. One block is open at a time, and blocks are numbered in the order in which they begin. A delta for a block that
   waits for its turn is kept until its turn comes, so that parallel tool calls are never merged or shifted.
2. A text or a thought ends where something else begins. A tool call ends when something else begins and its arguments
   are a whole JSON object; until then, what follows it waits: nobody but the vendor knows whether more will come. The
   finish ends them all.
3. A block of `thinking_blocks` ends the thought that it is the whole of: its signature goes out as a delta. One whose
   text was not streamed goes out whole.
4. So does a block of `text_blocks` with a text, whose citations go out as deltas.
5. Usage is known at the end, and stands in `message_delta`. That of `message_start` is what the vendor said of the
   input before it answered, else zero: some clients look for the input there alone.
6. A `ping` follows `message_start`, as Anthropic's does. The heartbeat of a silent stream is a comment: it may come
   before `message_start`, and nothing but that may be the first event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from terraflow.core.block_order import in_order, texts_of
from terraflow.gateway.mouths.messages_render import message_id, stop_of, tier_of, usage_object
from terraflow.ports.upstream import NOTHING_BESIDE, Chunk, ModelRequest, Usage

Json = dict[str, Any]
_Step = tuple[Callable[[Json], None], Json]

_PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(Json).decode


def event_of(name: str, body: Json) -> bytes:
    """One event; its name is also its body's type."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode({"type": name, **body}))


def error_event(body: bytes) -> bytes:
    """How a stream that cannot be finished ends: `body` as an error, and no `message_stop`."""
    return b"event: error\ndata: " + body + b"\n\n"


class _Block:
    """A block that is open or waits: `waiting` are its deltas that have not gone, `arguments` a tool call's pieces."""

    __slots__ = ("_judged", "arguments", "begun", "done", "kind", "start", "streamed", "waiting")

    def __init__(self, kind: str, start: Json) -> None:
        self.kind = kind
        self.start = start
        self.begun = False
        self.done = False
        self.streamed = False
        self.waiting: list[Json] = []
        self.arguments: list[str] = []
        self._judged = 0

    @property
    def complete(self) -> bool:
        """Whether nothing more of it can come when something else begins. Asked for each piece of what waits behind
        it, it reads the arguments again only when they have grown, and end like an object."""
        if self.done or self.kind != "tool_use":
            return True
        if len(self.arguments) == self._judged or not self.arguments[-1].rstrip().endswith("}"):
            return False
        self._judged = len(self.arguments)
        try:
            _decode_object("".join(self.arguments))
        except (msgspec.DecodeError, RecursionError):
            return False
        self.done = True
        return True


class EventWriter:
    """Server-sent events of one streamed answer."""

    def __init__(self, request_id: str, capability: str, _created: int, _request: ModelRequest) -> None:
        self._id = message_id(request_id)
        self._capability = capability
        self._blocks: deque[_Block] = deque()
        self._calls: dict[int, _Block] = {}
        self._index = 0
        self._started = False
        self._refused = False
        self._finish: str | None = None
        self._stop_sequence: str | None = None
        self._beside = NOTHING_BESIDE
        self._out: list[bytes] = []

    def event(self, chunk: Chunk) -> bytes:
        """The events of a chunk, empty when it holds nothing that may go yet."""
        out = self._out = []
        if chunk.beside is not None:
            self._beside = chunk.beside
        if not self._started:
            self._start(chunk.extras, chunk.begun or Usage())
        for choice in chunk.choices:
            delta = choice.get("delta")
            if delta:
                self._take(delta)
            if choice.get("finish_reason"):
                self._finish = choice["finish_reason"]
                self._flush(everything=True)
        if chunk.stop_sequence is not None:
            self._stop_sequence = chunk.stop_sequence
        return b"".join(out)

    def ending(self, usage: Usage) -> bytes:
        """What follows the last chunk of a whole answer."""
        self._out = []
        if not self._started:
            self._start({}, Usage())
        self._flush(everything=True)
        ended = stop_of(
            self._finish, self._stop_sequence, self._beside, refused=self._refused, called=bool(self._calls)
        )
        self._say("message_delta", {"delta": ended, "usage": usage_object(usage)})
        self._say("message_stop", {})
        return b"".join(self._out)

    def _start(self, extras: Json, begun: Usage) -> None:
        self._started = True
        message: Json = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._capability,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_object(begun) | tier_of(extras) | self._beside.usage,
        }
        self._say("message_start", {"message": message})
        self._out.append(_PING)

    def _say(self, name: str, body: Json) -> None:
        self._out.append(event_of(name, body))

    def _take(self, delta: Json) -> None:
        """A delta's fields in the order in which a whole answer has them, its own where it says one."""
        if order := delta.get("block_order"):
            self._take_in(order, delta)
            return
        blocks = delta.get("thinking_blocks")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and not blocks:
            self._piece(self._last("thinking"), {"type": "thinking_delta", "thinking": thought})
        for block in blocks or ():
            self._thinking_block(block)
        texts = delta.get("text_blocks")
        for block in texts or ():
            self._text_block(block)
        if (text := delta.get("content")) and not texts:
            self._piece(self._last("text"), {"type": "text_delta", "text": text})
        if refusal := delta.get("refusal"):
            self._refused = True
            self._piece(self._last("text"), {"type": "text_delta", "text": refusal})
        for call in delta.get("tool_calls") or ():
            self._call(call)

    def _take_in(self, order: list[Json], delta: Json) -> None:
        """A whole answer in one delta. In a stream that flows the order comes last, for what has gone already."""
        texts = delta.get("text_blocks")
        if texts is None:
            texts = [{"text": text, "citations": ()} for text in texts_of(order, delta.get("content") or "")]
        thoughts: list[_Step] = [(self._thinking_block, block) for block in delta.get("thinking_blocks") or ()]
        said: list[_Step] = [(self._text_block, block) for block in texts if block["text"]]
        calls: list[_Step] = [(self._call, call) for call in delta.get("tool_calls") or ()]
        for take, block in in_order(order, thoughts, said, calls):
            take(block)

    def _last(self, kind: str) -> _Block:
        """The last block when it is of that kind and takes more, else a new one behind it."""
        last = self._blocks[-1] if self._blocks else None
        if last is not None and last.kind == kind and not last.done:
            return last
        start: Json = {"type": "text", "text": ""}
        if kind == "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
        return self._open(_Block(kind, start))

    def _open(self, block: _Block) -> _Block:
        self._blocks.append(block)
        self._flush()
        return block

    def _thinking_block(self, block: Json) -> None:
        if block["type"] != "thinking":
            self._open(_Block(block["type"], {k: v for k, v in block.items() if k != "index"})).done = True
            self._flush()
            return
        target = self._last("thinking")
        if not target.streamed and block["thinking"]:
            self._piece(target, {"type": "thinking_delta", "thinking": block["thinking"]})
        if block["signature"]:
            self._piece(target, {"type": "signature_delta", "signature": block["signature"]})
        target.done = True
        self._flush()

    def _text_block(self, block: Json) -> None:
        if not block["text"]:
            return
        target = self._last("text")
        if not target.streamed:
            self._piece(target, {"type": "text_delta", "text": block["text"]})
        for citation in block["citations"]:
            self._piece(target, {"type": "citations_delta", "citation": citation})
        target.done = True
        self._flush()

    def _call(self, piece: Json) -> None:
        number, function = piece["index"], piece.get("function") or piece.get("custom") or {}
        block = self._calls.get(number)
        if block is None:
            start: Json = {"type": "tool_use", "id": piece.get("id") or f"toolu_{number}", "name": "", "input": {}}
            block = self._calls[number] = _Block("tool_use", start)
            block.start["name"] = function.get("name") or ""
            self._open(block)
        elif not block.start["name"] and function.get("name"):
            block.start["name"] = function["name"]
        arguments = function.get("arguments") or function.get("input")
        if arguments:
            block.arguments.append(arguments)
            self._piece(block, {"type": "input_json_delta", "partial_json": arguments})
        else:
            self._flush()

    def _piece(self, block: _Block, delta: Json) -> None:
        block.streamed = True
        block.waiting.append(delta)
        self._flush()

    def _flush(self, *, everything: bool = False) -> None:
        """Send what may go: all of the first block, and of each behind one that has ended."""
        blocks = self._blocks
        while blocks:
            head = blocks[0]
            if head.kind == "tool_use" and not head.start["name"] and not everything:
                return
            if not head.begun:
                head.begun = True
                self._say("content_block_start", {"index": self._index, "content_block": head.start})
            for delta in head.waiting:
                self._say("content_block_delta", {"index": self._index, "delta": delta})
            head.waiting.clear()
            if not (everything or head.done or (len(blocks) > 1 and head.complete)):
                return
            blocks.popleft()
            self._say("content_block_stop", {"index": self._index})
            self._index += 1
