"""Prompts by the engines' own blocks, and what becomes of those that take too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from terraflow.hints.blocks import block_keys
from terraflow.hints.plane.content import SCHEME
from terraflow.hints.plane.tokenized import THREADS, TokenPrefixes
from terraflow.hints.tokens.loaded import BYTES, LoadedTokenizers, TokenizerFiles
from terraflow.ports.hints import Prefix

SOON_S = 0.05


class Slow:
    """A tokenizer that takes its time."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s
        self.asked = 0

    def messages(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> Sequence[int] | None:
        self.asked += 1
        time.sleep(self.takes_s)
        return list(range(1_000))


class Refusing:
    """A tokenizer that has none for the model, or breaks its promise."""

    def __init__(self, raises: bool) -> None:
        self.raises = raises

    def messages(self, *_: object) -> Sequence[int] | None:
        if self.raises:
            raise RuntimeError("planted")
        return None


def prefixes(tokens: Any, block_tokens: int = 16) -> TokenPrefixes:
    return TokenPrefixes(
        tokens, BYTES, scheme="vllm", block_tokens=block_tokens, tenant="fleet", model="m", adapter="a"
    )


def asking(words: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "word " * words}]}


async def found(made: TokenPrefixes, words: int, timeout_s: float = SOON_S) -> Prefix:
    prefix = await made.prefix(asking(words), timeout_s)
    assert prefix is not None
    return prefix


async def test_a_prompt_in_time_is_known_by_the_engines_blocks() -> None:
    loaded = LoadedTokenizers({BYTES: TokenizerFiles(BYTES)})
    prefix = await found(prefixes(loaded, block_tokens=32), 100, 5.0)
    ids = loaded.messages(BYTES, asking(100)["messages"])
    assert ids is not None
    assert list(prefix.hashes) == block_keys(ids, 32)
    assert (prefix.scheme, prefix.adapter, prefix.tokens, prefix.unreported) == ("vllm", "a", len(ids), False)
    assert set(prefix.counts) == {32}


@pytest.mark.parametrize("raises", [False, True])
async def test_what_cannot_be_tokenized_is_known_by_its_text(raises: bool) -> None:
    prefix = await found(prefixes(Refusing(raises)), 400)
    assert (prefix.scheme, prefix.unreported, prefix.adapter) == (SCHEME, True, "a")
    assert prefix.hashes


async def test_a_tokenizer_that_is_too_slow_is_not_waited_for_and_soon_not_asked() -> None:
    slow = Slow(0.2)
    made = prefixes(slow)
    began = time.monotonic()
    for _ in range(60):
        assert (await found(made, 400, 0.01)).scheme == SCHEME
    # Had each waited, it would be twelve seconds.
    assert time.monotonic() - began < 6.0
    assert THREADS <= slow.asked <= 20


async def test_a_long_prompt_is_not_begun_when_it_cannot_be_done_in_time() -> None:
    slow = Slow(0.0)
    made = prefixes(slow)
    assert (await found(made, 20_000, 0.005)).scheme == SCHEME
    assert slow.asked == 0
    assert (await found(made, 300, 5.0)).scheme == "vllm"


async def test_without_a_thread_to_be_had_a_prompt_is_known_by_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    made = prefixes(Slow(0.0))
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        for _ in range(2 * THREADS):
            assert (await found(made, 400)).scheme == SCHEME
    assert (await found(made, 400, 5.0)).scheme == "vllm"
