"""What callers ask of the simulated engine, parsed: lenient where engines are, and bounded.

1. Fields that change only the words (temperature, stop, tools …) are accepted and mean nothing here.
2. Messages become tokens as one prompt through `Tokens`; parts other than text are refused, as an engine of text does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

PROMPT_TOKENS_MAX = 1 << 20
OUTPUT_TOKENS_MAX = 1 << 16


class Refused(ValueError):
    """A request that this engine does not take, in words for its caller."""


class Tokens(Protocol):
    """A tokenizer with a chat template."""

    def encode(self, text: str) -> Sequence[int]:
        """Text alone."""
        ...

    def chat(self, messages: Sequence[tuple[str, str]]) -> Sequence[int]:
        """(role, text) of each message, and the beginning of the answer."""
        ...


class ByteTokens:
    """One token a byte, and the template that many open models use."""

    def encode(self, text: str) -> Sequence[int]:
        """UTF-8; half a surrogate pair counts as a question mark."""
        return text.encode("utf-8", "replace")

    def chat(self, messages: Sequence[tuple[str, str]]) -> Sequence[int]:
        """Each message between its marks."""
        rendered = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
        return self.encode(f"{rendered}<|im_start|>assistant\n")


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message] | None = None
    prompt: str | list[int | str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    n: int | None = 1


class Asked(msgspec.Struct, frozen=True):
    """One request, as the engine works on it."""

    model: str
    prompt: Sequence[int]
    output_tokens: int
    cut: bool
    """Whether the caller's bound ends the output, rather than the engine."""
    stream: bool
    include_usage: bool
    chat: bool


_BODY = msgspec.json.Decoder(_Body)


def parse(body: bytes, *, chat: bool, tokens: Tokens, output_tokens: int) -> Asked:
    """A body of /v1/chat/completions or /v1/completions; `output_tokens` is what an answer has unless less is asked
    for. Raises Refused."""
    try:
        asked = _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Refused(str(fault)) from None
    if asked.n not in (None, 1):
        raise Refused("n is 1 here")
    prompt = _chat(asked, tokens) if chat else _plain(asked, tokens)
    if not 0 < len(prompt) <= PROMPT_TOKENS_MAX:
        raise Refused(f"the prompt has {len(prompt)} tokens; 1 to {PROMPT_TOKENS_MAX} go")
    bound = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
    if bound is not None and not 1 <= bound <= OUTPUT_TOKENS_MAX:
        raise Refused(f"max_tokens is within 1 and {OUTPUT_TOKENS_MAX}")
    return Asked(
        model=asked.model,
        prompt=prompt,
        output_tokens=output_tokens if bound is None else min(bound, output_tokens),
        cut=bound is not None and bound < output_tokens,
        stream=bool(asked.stream),
        include_usage=asked.stream_options is not None and bool(asked.stream_options.include_usage),
        chat=chat,
    )


def _chat(asked: _Body, tokens: Tokens) -> Sequence[int]:
    if not asked.messages:
        raise Refused("messages is missing or empty")
    return tokens.chat([(message.role, _text(message.content)) for message in asked.messages])


def _text(content: str | list[_Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in ("text", "input_text"):
            raise Refused(f"a content part of type {part.type} is not text")
    return "".join(part.text for part in content)


def _plain(asked: _Body, tokens: Tokens) -> Sequence[int]:
    prompt = asked.prompt
    if isinstance(prompt, str):
        return tokens.encode(prompt)
    if not prompt:
        raise Refused("prompt is missing or empty")
    if isinstance(prompt[0], str):
        if len(prompt) != 1:
            raise Refused("one prompt a request here")
        return tokens.encode(prompt[0])
    ids = [each for each in prompt if isinstance(each, int) and 0 <= each < 1 << 32]
    if len(ids) != len(prompt):
        raise Refused("token ids are within 0 and 2^32 - 1")
    return ids
