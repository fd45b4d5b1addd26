"""A streamed answer put together from its chunks.

1. Deltas of one choice are joined in order, each field by its own rule; parallel tool calls stay apart by index.
2. A field that no rule knows cannot be joined: the answer then counts as not kept, and is never given in part.
3. Kept only when asked, and at most `BYTES_MAX` of it: beyond that the answer counts as not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from terraflow.ports.upstream import NOTHING_BESIDE, Answer, Chunk, Usage

BYTES_MAX = 4 * 1024 * 1024
"""More than any model's longest answer; a stream beyond it is not kept for replay."""


class Assembly:
    """What has come of an answer. `output_bytes` are the UTF-8 bytes of all that the model wrote."""

    __slots__ = ("_beside", "_choices", "_extras", "_keep", "_stop_sequence", "output_bytes", "usage")

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._choices: dict[int, dict[str, Any]] = {}
        self._extras: dict[str, Any] = {}
        self._stop_sequence: str | None = None
        self._beside = NOTHING_BESIDE
        self.output_bytes = 0
        self.usage: Usage | None = None

    def add(self, chunk: Chunk) -> None:
        """Count a chunk, and keep it if this answer is kept."""
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices:
            delta = choice.get("delta")
            if delta:
                self.output_bytes += _written(delta)
            if self._keep:
                self._join(choice, delta or {})
        if self._keep and self.output_bytes > BYTES_MAX:
            self._give_up()
        if self._keep and chunk.extras:
            self._extras.update(chunk.extras)
        if chunk.stop_sequence is not None:
            self._stop_sequence = chunk.stop_sequence
        if chunk.beside is not None:
            self._beside = chunk.beside

    def _join(self, choice: dict[str, Any], delta: dict[str, Any]) -> None:
        index = choice["index"]
        whole = self._choices.get(index)
        if whole is None:
            whole = {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
            self._choices[index] = whole
        for key, value in delta.items():
            if value is None:
                continue
            rule = _RULES.get(key)
            if rule is None:
                self._give_up()
                return
            rule(whole["message"], key, value)
        if choice.get("finish_reason"):
            whole["finish_reason"] = choice["finish_reason"]
        logprobs = choice.get("logprobs")
        if logprobs is not None:
            joined = whole.setdefault("logprobs", {})
            for key, tokens in logprobs.items():
                joined[key] = (joined.get(key) or []) + tokens if isinstance(tokens, list) else tokens

    def _give_up(self) -> None:
        self._keep = False
        self._choices.clear()

    def answer(self) -> Answer | None:
        """The whole answer, when it was kept and every choice is finished."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not self._keep or not choices or any(choice["finish_reason"] is None for choice in choices):
            return None
        for choice in choices:
            for call in choice["message"].get("tool_calls") or ():
                call.pop("index", None)
        return Answer(
            choices=choices,
            usage=self.usage or Usage(),
            extras=self._extras,
            stop_sequence=self._stop_sequence,
            beside=self._beside,
        )


_UNCOUNTED = frozenset({"id", "type", "thinking", "text"})
"""The last two are in blocks, which repeat what was streamed before them."""


def _written(delta: dict[str, Any]) -> int:
    """UTF-8 bytes of the strings in a delta, but for names of fields, roles, ids and types, each text once."""
    written, stack = 0, [value for key, value in delta.items() if key != "role"]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            written += len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            stack += [inner for key, inner in value.items() if key not in _UNCOUNTED]
    return written


def _set(message: dict[str, Any], key: str, value: Any) -> None:
    message[key] = value


def _append(message: dict[str, Any], key: str, value: str) -> None:
    message[key] = (message.get(key) or "") + value


def _extend(message: dict[str, Any], key: str, value: list[Any]) -> None:
    message[key] = [*message.get(key, ()), *value]


def _named(message: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    """A name that is given once, and text that comes in pieces: a function's arguments, a custom tool's input."""
    whole = message.setdefault(key, {"name": ""})
    for part, text in value.items():
        if text is None:
            continue
        if part == "name":
            whole["name"] = text or whole["name"]
        else:
            whole[part] = (whole.get(part) or "") + text


def _audio(message: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    whole = message.setdefault(key, {})
    for part, piece in value.items():
        joins = part in ("data", "transcript") and piece is not None
        whole[part] = (whole.get(part) or "") + piece if joins else piece


def _calls(message: dict[str, Any], key: str, value: list[dict[str, Any]]) -> None:
    calls = message.setdefault(key, [])
    for piece in value:
        whole = next((call for call in calls if call["index"] == piece["index"]), None)
        if whole is None:
            whole = {"index": piece["index"], "id": None, "type": piece.get("type") or "function"}
            calls.append(whole)
        whole["id"] = piece.get("id") or whole["id"]
        for kind in ("function", "custom"):
            if piece.get(kind) is not None:
                _named(whole, kind, piece[kind])


_RULES: dict[str, Callable[[dict[str, Any], str, Any], None]] = {
    "role": _set,
    "content": _append,
    "refusal": _append,
    "reasoning_content": _append,
    "reasoning": _append,
    "thinking_blocks": _extend,
    "text_blocks": _extend,
    "block_order": _set,
    "annotations": _extend,
    "tool_calls": _calls,
    "function_call": _named,
    "audio": _audio,
}
"""How each field of a delta joins what came before."""
