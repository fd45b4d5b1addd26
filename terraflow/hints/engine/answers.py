"""What a simulated engine says: words that follow from the prompt, and the shapes of OpenAI's answers around them.

1. The same prompt and length give the same words, on every engine and after every restart.
2. An answer is never longer than was asked for; usage counts what was said, and the prompt's tokens found in caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import xxhash

# fmt: off
_WORDS = (
    "the", "ledger", "closes", "when", "each", "entry", "has", "its", "pair", "and", "a", "quiet", "clerk", "reads",
    "oldest", "page", "first", "then", "writes", "what", "was", "found", "beside", "it", "in", "ink",
)
# fmt: on


class Piece(NamedTuple):
    """What one chunk of a stream says."""

    text: str
    tokens: tuple[int, ...]


class Usage(NamedTuple):
    """Tokens, as they are told."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def document(self) -> dict[str, Any]:
        """As OpenAI writes it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def pieces(prompt: Sequence[int], tokens_max: int, encode: Callable[[str], Sequence[int] | None]) -> list[Piece]:
    """An answer of at most so many tokens: as many words as go in, the rest in single letters."""
    state = xxhash.xxh3_64_intdigest(b"".join([token.to_bytes(4, "little") for token in prompt[-64:]]))
    said: list[Piece] = []
    left = tokens_max
    while left > 0:
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        text = _WORDS[(state >> 33) % len(_WORDS)] + " "
        tokens = tuple(encode(text) or ())
        if not tokens or len(tokens) > left:
            text, tokens = "a", tuple(encode("a") or ())[:left] or (0,)
        said.append(Piece(text, tokens))
        left -= len(tokens)
    return said


class Shape(NamedTuple):
    """One answer's frame: chat or plain completion."""

    name: str
    created: int
    model: str
    chat: bool

    def whole(self, text: str, finish: str, usage: Usage) -> dict[str, Any]:
        """The answer in one piece."""
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish}
        return {**self._head(False), "choices": [choice], "usage": usage.document()}

    def first(self) -> dict[str, Any] | None:
        """A chat stream's first chunk."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if self.chat else None

    def chunk(self, text: str) -> dict[str, Any]:
        """A stream's next words."""
        return self._chunk({"delta": {"content": text}} if self.chat else {"text": text}, None)

    def last(self, finish: str) -> dict[str, Any]:
        """A stream's end."""
        return self._chunk({"delta": {}} if self.chat else {"text": ""}, finish)

    def told(self, usage: Usage) -> dict[str, Any]:
        """A stream's usage, after its end."""
        return {**self._head(True), "choices": [], "usage": usage.document()}

    def _chunk(self, said: dict[str, Any], finish: str | None) -> dict[str, Any]:
        return {**self._head(True), "choices": [{"index": 0, **said, "logprobs": None, "finish_reason": finish}]}

    def _head(self, streamed: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if streamed else "chat.completion") if self.chat else "text_completion"
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model}


def refusal(message: str, kind: str, code: int) -> dict[str, Any]:
    """An error as these engines write it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
