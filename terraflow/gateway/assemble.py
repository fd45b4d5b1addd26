"""A streamed answer put together from its chunks.

1. Deltas of one choice are joined in order; parallel tool calls stay apart by their index.
2. Kept only when asked, and at most `BYTES_MAX` of it: beyond that the answer counts as not kept.
"""

from __future__ import annotations

from typing import Any

from terraflow.ports.upstream import Answer, Chunk, Usage

BYTES_MAX = 4 * 1024 * 1024
"""More than any model's longest answer; a stream beyond it is not kept for replay."""

_JOINED = ("content", "refusal", "reasoning_content", "reasoning")


class Assembly:
    """What has come of an answer."""

    __slots__ = ("_choices", "_extras", "_keep", "finished", "output_bytes", "usage")

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._choices: dict[int, dict[str, Any]] = {}
        self._extras: dict[str, Any] = {}
        self.finished = False
        self.output_bytes = 0
        self.usage: Usage | None = None

    def add(self, chunk: Chunk) -> None:
        """Count a chunk, and keep it if this answer is kept."""
        if chunk.usage is not None:
            self.usage = chunk.usage
        for choice in chunk.choices:
            delta = choice.get("delta") or {}
            for name in _JOINED:
                text = delta.get(name)
                if text:
                    self.output_bytes += len(text)
            for call in delta.get("tool_calls") or ():
                self.output_bytes += len((call.get("function") or {}).get("arguments") or "")
            if choice.get("finish_reason"):
                self.finished = True
            if self._keep:
                self._join(choice, delta)
        if self.output_bytes > BYTES_MAX:
            self._keep = False
            self._choices.clear()
        if self._keep and chunk.extras:
            self._extras.update(chunk.extras)

    def _join(self, choice: dict[str, Any], delta: dict[str, Any]) -> None:
        index = choice["index"]
        whole = self._choices.get(index)
        if whole is None:
            whole = {"index": index, "message": {"role": "assistant", "content": None}, "finish_reason": None}
            self._choices[index] = whole
        message = whole["message"]
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    _join_call(message.setdefault("tool_calls", []), call)
            elif key in _JOINED and value is not None:
                message[key] = (message.get(key) or "") + value
            elif value is not None:
                message[key] = value
        if choice.get("finish_reason"):
            whole["finish_reason"] = choice["finish_reason"]
        logprobs = choice.get("logprobs")
        if logprobs is not None:
            joined = whole.setdefault("logprobs", {})
            for key, tokens in logprobs.items():
                joined[key] = (joined.get(key) or []) + tokens if isinstance(tokens, list) else tokens

    def answer(self) -> Answer | None:
        """The whole answer, when it was kept and every choice is finished."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not self._keep or not choices or any(choice["finish_reason"] is None for choice in choices):
            return None
        for choice in choices:
            for call in choice["message"].get("tool_calls") or ():
                call.pop("index", None)
        return Answer(choices=choices, usage=self.usage or Usage(), extras=self._extras)


def _join_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    index = piece["index"]
    whole = next((call for call in calls if call["index"] == index), None)
    if whole is None:
        whole = {"index": index, "id": None, "type": "function", "function": {"name": "", "arguments": ""}}
        calls.append(whole)
    if piece.get("id"):
        whole["id"] = piece["id"]
    function = piece.get("function") or {}
    if function.get("name"):
        whole["function"]["name"] = function["name"]
    whole["function"]["arguments"] += function.get("arguments") or ""
