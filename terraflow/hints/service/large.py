"""Lookups of a size that nobody's prompt has, and anybody may send: answered in turns with everything else.

1. Counts are read before anything is copied. What is beyond the limits is answered at once: there is no hint for it.
2. One is worked at at a time, a few of an address are taken in, and not many of all; one more has no hint at once.
3. A caller's deadline, and the policy's, ends the wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from terraflow.hints.blocks import prefix_hashes, wire
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import BLOCKS_MAX, TOKEN_IDS_MAX

LARGE_BLOCKS = 4_096
LARGE_TOKENS = 1 << 16
OF_AN_ADDRESS_MAX = 2
IN_ALL_MAX = 16
BLOCKS_A_TURN = 1_024


def is_large(request: pb.LookupRouteRequest) -> bool:
    """Whether a lookup is to be answered in turns (rule 1)."""
    blocks, token_ids = len(request.block_hashes), len(request.token_ids)
    if blocks <= LARGE_BLOCKS and token_ids <= LARGE_TOKENS:
        return False
    return blocks <= BLOCKS_MAX and token_ids <= TOKEN_IDS_MAX


class LargeLookups:
    """Who is taken in, and whose turn it is."""

    def __init__(self) -> None:
        self._of_address: Counter[str] = Counter()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, address: str, wait_s: float | None) -> AsyncIterator[bool]:
        """The turn of one lookup from an address; False at once when there are too many of them. Raises TimeoutError
        when it has not come in time."""
        if self._of_address[address] >= OF_AN_ADDRESS_MAX or self._of_address.total() >= IN_ALL_MAX:
            yield False
            return
        self._of_address[address] += 1
        try:
            async with asyncio.timeout(wait_s):
                await self._turn.acquire()
            try:
                await asyncio.sleep(0)
                yield True
            finally:
                self._turn.release()
        finally:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]


async def keys_in_turns(token_ids: Sequence[int], block_tokens: int) -> list[bytes]:
    """`blocks.block_keys`, with turns for others."""
    keys: list[bytes] = []
    parent: int | None = None
    for at in range(0, len(token_ids) - block_tokens + 1, BLOCKS_A_TURN * block_tokens):
        chained = prefix_hashes(token_ids[at : at + BLOCKS_A_TURN * block_tokens], block_tokens, parent)
        parent = chained[-1]
        keys.extend(map(wire, chained))
        await asyncio.sleep(0)
    return keys
