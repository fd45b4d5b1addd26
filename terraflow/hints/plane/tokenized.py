"""Prompts known by the engines' own blocks: a fleet's chat template and tokenizer, off the event loop.

1. A prompt that is taken apart in time is known by its tokens' blocks, which the engines report themselves.
2. One that would take longer is known by blocks of its text instead (`content`), as is one that cannot be tokenized:
   the same prompt fares the same way each time, so that its reports are found again.
3. How long a prompt takes is foretold from those before it. What was foretold wrongly is given up at the deadline, and
   not waited for; there are never more of them than threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from terraflow.hints.blocks import block_keys
from terraflow.hints.plane.content import BYTES_PER_TOKEN, ContentPrefixes
from terraflow.ports.hints import Prefix

THREADS = 2
BYTES_PER_S = 1_000_000.0
"""What common tokenizers do of English text, until it is known better."""
LEARNS = 0.1
"""The weight of the last prompt in what the next is foretold from."""
FORGETS = 1.001
"""So that a prompt is tried again some time after a slow hour."""
TELLING_BYTES = 1_024
SHARE_OF_TIME = 0.6
"""The rest of the deadline is for the lookup."""


class Tokens(Protocol):
    """Chats to token ids, as the engines make them."""

    def messages(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> Sequence[int] | None:
        """None when that is not to be had. MUST NOT raise."""
        ...


class _Taken(NamedTuple):
    hashes: list[bytes]
    tokens: int
    took_s: float


class TokenPrefixes:
    """The prefixes of one fleet's prompts; see `ports.hints.Prefixes`."""

    def __init__(
        self, tokens: Tokens, tokenizer: str, *, scheme: str, block_tokens: int, tenant: str, model: str, adapter: str
    ) -> None:
        """`tokenizer` is the name by which `tokens` knows it."""
        self._tokens = tokens
        self._tokenizer = tokenizer
        self._scheme = scheme
        self._block_tokens = block_tokens
        self._tenant = tenant
        self._model = model
        self._adapter = adapter
        self._by_content = ContentPrefixes(tenant=tenant, model=model, adapter=adapter)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tokenize")
        self._running = 0
        self._bytes_per_s = BYTES_PER_S

    async def prefix(self, document: Mapping[str, Any], timeout_s: float) -> Prefix | None:
        """The prompt's blocks; see the module's rules."""
        content = await self._by_content.prefix(document, timeout_s)
        if content is None or self._running >= THREADS:
            return content
        size, most_s = content.tokens * BYTES_PER_TOKEN, timeout_s * SHARE_OF_TIME
        if size > most_s * self._bytes_per_s:
            self._bytes_per_s *= FORGETS
            return content
        try:
            taking = asyncio.get_running_loop().run_in_executor(self._threads, self._take, document)
        except RuntimeError:
            # No thread is to be had.
            return content
        self._running += 1
        taking.add_done_callback(self._ended)
        done, _ = await asyncio.wait((taking,), timeout=most_s)
        if not done:
            # A little slower each time, so that prompts of this size are soon foretold right.
            self._learn(size, 2 * most_s)
            return content
        taken = taking.result()
        if taken is None:
            return content
        self._learn(size, taken.took_s)
        return Prefix(
            tenant=self._tenant,
            model=self._model,
            adapter=self._adapter,
            scheme=self._scheme,
            hashes=taken.hashes,
            counts=(self._block_tokens,) * len(taken.hashes),
            tokens=taken.tokens,
        )

    def _take(self, document: Mapping[str, Any]) -> _Taken | None:
        began = time.perf_counter()
        try:
            ids = self._tokens.messages(self._tokenizer, document["messages"], document.get("tools"))
            if ids is None:
                return None
            hashes = block_keys(ids, self._block_tokens)
        except Exception:
            return None
        return _Taken(hashes, len(ids), time.perf_counter() - began)

    def _ended(self, _: object) -> None:
        self._running -= 1

    def _learn(self, size: int, took_s: float) -> None:
        # Short prompts are all overhead, and tell nothing of what long ones take.
        if size >= TELLING_BYTES:
            self._bytes_per_s += LEARNS * (size / max(took_s, 1e-6) - self._bytes_per_s)
