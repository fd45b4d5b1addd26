"""An answer of Anthropic's Messages API in neutral form: whole, and event by event.

1. Thinking becomes `reasoning_content`, the readable text, and `thinking_blocks`, the blocks as they came with
   their signatures, so that a later turn can send them back. In a stream a block follows its text, whole, with an
   `index`, so that clients that merge deltas by index keep each.
2. Tool calls are numbered in the order in which their blocks begin; a call keeps its number, however the blocks'
   events are mixed. What a block's start already holds is sent like a delta; a call without arguments has `{}`.
3. Where citations were asked for, `text_blocks` has the text once more, in the blocks in which it came, with their
   citations. In a stream a block follows its text, like one of thinking.
4. Usage is told once, with the finish: before it Anthropic's output count is a placeholder, and what the start says is
   `begun` alone.
5. Where blocks do not come in the usual order, `block_order` says how they came (`core.block_order`); in a stream it
   comes with the finish.
6. Events out of order, for blocks that are not open, or after the end, are MALFORMED.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from terraflow.core.block_order import CALL, TEXT, THINKING, order_of
from terraflow.ports.upstream import Answer, Chunk, Failure, ProviderFailure
from terraflow.providers import anthropic_wire as wire
from terraflow.providers.failures import ANTHROPIC, failure_of_success

_decode_message = msgspec.json.Decoder(wire.Message).decode
_decode_event = msgspec.json.Decoder(wire.Event).decode
_decode_type = msgspec.json.Decoder(wire.EventType).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_to_json = msgspec.json.Encoder().encode
_BAD = (msgspec.DecodeError, RecursionError)
_KINDS: dict[type, str] = {wire.Text: TEXT, wire.ThinkingBlock: THINKING, wire.Redacted: THINKING, wire.ToolUse: CALL}


def _malformed() -> NoReturn:
    raise ProviderFailure(Failure.MALFORMED, reached=True, status=200)


def parse_answer(raw: bytes) -> Answer:
    """The answer in a response's body. Raises ProviderFailure."""
    try:
        message = _decode_message(raw)
    except _BAD:
        message = None
    if message is None:
        raise failure_of_success(ANTHROPIC, raw)
    said: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    texts: list[str] = []
    thoughts: list[str] = []
    blocks: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    cited: list[dict[str, Any]] = []
    for block in message.content:
        match block:
            case wire.Text(text=text):
                texts.append(text)
                cited.append(_cited(text, block.citations or []))
            case wire.ThinkingBlock(thinking=thought):
                thoughts.append(thought)
                blocks.append(_thinking_block(thought, block.signature))
            case wire.Redacted(data=data):
                blocks.append({"type": "redacted_thinking", "data": data})
            case wire.ToolUse():
                function = {"name": block.name, "arguments": _arguments(block.input)}
                calls.append({"id": block.id, "type": "function", "function": function})
    if texts:
        said["content"] = "".join(texts)
    if any(block["citations"] for block in cited):
        said["text_blocks"] = cited
    if blocks:
        said["reasoning_content"] = "".join(thoughts)
        said["thinking_blocks"] = blocks
    if calls:
        said["tool_calls"] = calls
    order = order_of([(_KINDS[type(b)], len(b.text) if type(b) is wire.Text else 0) for b in message.content])
    if order is not None:
        said["block_order"] = order
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": _finish(message.stop_reason)}
    usage = wire.usage_of(message.usage)
    if usage is None:
        _malformed()
    return Answer(
        choices=[choice],
        usage=usage,
        extras=_extras(message.usage),
        stop_sequence=message.stop_sequence,
        beside=wire.beside_of(message.usage, message),
    )


def _finish(said: str | None) -> str:
    if said not in wire.FINISHES:
        _malformed()
    return wire.FINISHES[said]


def _extras(usage: wire.WireUsage) -> dict[str, Any]:
    tier = wire.SERVICE_TIERS.get(usage.service_tier or "")
    return {} if tier is None else {"service_tier": tier}


def _thinking_block(thought: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thought, "signature": signature}


def _cited(text: str, citations: list[wire.Citation]) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": msgspec.to_builtins(citations)}


def _arguments(raw: msgspec.Raw) -> str:
    """A tool's input as JSON text, made anew from what was parsed; it must be an object."""
    try:
        return _to_json(_decode_object(raw)).decode()
    except _BAD:
        pass
    _malformed()


class _Open:
    """A block; `characters` are those of a text."""

    __slots__ = ("call", "characters", "citations", "kind", "parts", "signature")

    def __init__(self, kind: type, call: int | None = None) -> None:
        self.kind = kind
        self.call = call
        self.characters = 0
        self.parts: list[str] = []
        self.signature = ""
        self.citations: list[wire.Citation] = []


class EventTranslator:
    """The chunks of one stream, in order, and whether the stream was whole. `cited`: citations were asked for."""

    __slots__ = (
        "_begun", "_blocks", "_calls", "_cited", "_extras", "_finished", "_open", "_texts", "_thoughts", "done",
    )  # fmt: skip

    def __init__(self, *, cited: bool = False) -> None:
        self._cited = cited
        self._texts = 0
        self._begun: wire.WireUsage | None = None
        self._open: dict[int, _Open] = {}
        self._blocks: list[_Open] = []
        self._calls = 0
        self._thoughts = 0
        self._finished = False
        self._extras: dict[str, Any] = {}
        self.done = False

    @property
    def whole(self) -> bool:
        """Whether the answer finished before its end mark."""
        return self.done and self._finished

    def translate(self, raw: bytes) -> Chunk | None:
        """The chunk of an event, None for one that says nothing to a client. Raises ProviderFailure."""
        event = _parse_event(raw)
        if event is None or (type(event) is wire.Ping and not self.done):
            return None
        if (self._begun is None) is not (type(event) is wire.MessageStart) or self.done:
            _malformed()
        match event:
            case wire.BlockDelta(index=index, delta=delta):
                return self._delta(index, delta)
            case wire.BlockStart(index=index, content_block=block):
                return self._start(index, block)
            case wire.BlockStop(index=index):
                return self._stop(index)
            case wire.MessageStart(message=message):
                self._begun = message.usage
                self._extras = _extras(message.usage)
                chunk = self._say({"role": "assistant", "content": ""})
                chunk.begun = wire.usage_of(message.usage)
                chunk.beside = wire.beside_of(message.usage, message)
                return chunk
            case wire.MessageDelta(delta=ended, usage=usage):
                return self._end(ended, usage)
            case wire.MessageStop():
                self.done = True
                return None
            case wire.Ping():
                return None

    def _say(self, delta: dict[str, Any], finish: str | None = None) -> Chunk:
        return Chunk(
            choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], extras=self._extras
        )

    def _call(self, call: int, arguments: str) -> Chunk:
        return self._say({"tool_calls": [{"index": call, "function": {"arguments": arguments}}]})

    def _delta(self, index: int, delta: wire.Delta) -> Chunk | None:
        block = self._open.get(index)
        if block is None:
            _malformed()
        match delta:
            case wire.TextDelta(text=text) if block.kind is wire.Text:
                block.characters += len(text)
                if self._cited:
                    block.parts.append(text)
                return self._say({"content": text})
            case wire.CitationsDelta(citation=citation) if block.kind is wire.Text and self._cited:
                block.citations.append(citation)
                return None
            case wire.JsonDelta(partial_json=piece) if block.kind is wire.ToolUse and block.call is not None:
                if not piece:
                    return None
                block.parts = ["sent"]
                return self._call(block.call, piece)
            case wire.ThinkingDelta(thinking=thought) if block.kind is wire.ThinkingBlock:
                block.parts.append(thought)
                return self._say({"reasoning_content": thought})
            case wire.SignatureDelta(signature=signature) if block.kind is wire.ThinkingBlock:
                block.signature += signature
                return None
        _malformed()

    def _start(self, index: int, block: wire.Block) -> Chunk | None:
        if index in self._open:
            _malformed()
        opened = self._open[index] = _Open(type(block))
        self._blocks.append(opened)
        match block:
            case wire.Text(text=text):
                opened.parts, opened.citations, opened.characters = [text], block.citations or [], len(text)
                return self._say({"content": text}) if text else None
            case wire.ThinkingBlock(thinking=thought, signature=signature):
                opened.signature = signature
                opened.parts = [thought]
                return self._say({"reasoning_content": thought}) if thought else None
            case wire.Redacted(data=data):
                return self._say({"thinking_blocks": [self._thought({"type": "redacted_thinking", "data": data})]})
            case wire.ToolUse():
                opened.call, self._calls = self._calls, self._calls + 1
                begun = _arguments(block.input)
                opened.parts = ["" if begun == "{}" else begun]
                function = {"name": block.name, "arguments": ""}
                return self._say(
                    {"tool_calls": [{"index": opened.call, "id": block.id, "type": "function", "function": function}]}
                )

    def _stop(self, index: int) -> Chunk | None:
        block = self._open.pop(index, None)
        if block is None:
            _malformed()
        # The block is remembered for its place, its text is not.
        parts, block.parts = block.parts, []
        if block.call is not None and parts != ["sent"]:
            return self._call(block.call, parts[0] or "{}")
        if block.kind is wire.ThinkingBlock:
            whole = _thinking_block("".join(parts), block.signature)
            return self._say({"thinking_blocks": [self._thought(whole)]})
        if block.kind is wire.Text and self._cited:
            self._texts += 1
            said = _cited("".join(parts), block.citations)
            return self._say({"text_blocks": [{"index": self._texts - 1, **said}]})
        return None

    def _thought(self, block: dict[str, Any]) -> dict[str, Any]:
        self._thoughts += 1
        return {"index": self._thoughts - 1, **block}

    def _end(self, ended: wire.MessageDeltaBody, usage: wire.WireUsage) -> Chunk | None:
        if ended.stop_reason is None:
            return None
        if self._finished or self._open:
            _malformed()
        self._finished = True
        order = order_of([(_KINDS[block.kind], block.characters) for block in self._blocks])
        chunk = self._say({} if order is None else {"block_order": order}, _finish(ended.stop_reason))
        chunk.stop_sequence = ended.stop_sequence
        chunk.usage = wire.usage_of(usage, self._begun)
        chunk.beside = wire.beside_of(self._begun or usage, ended)
        return chunk


def _parse_event(raw: bytes) -> wire.Event | None:
    """The event, None for one to skip. Raises ProviderFailure."""
    try:
        return _decode_event(raw)
    except _BAD:
        pass
    try:
        name = _decode_type(raw).type
    except _BAD:
        name = "error"
    if name not in wire.EVENT_TYPES:
        return None
    raise failure_of_success(ANTHROPIC, raw)
