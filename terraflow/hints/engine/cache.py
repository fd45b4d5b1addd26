"""A block-wise prefix cache of a fixed size, as engines keep one.

1. A block is known by a key that stands for itself and all before it; a request is a chain of keys, parents first.
2. Least recently used goes first, and children go before their parents: whatever touches a block touches its parents
   after it, so that no parent is ever older than its child, and what is held is always leading runs.
3. Blocks in use are pinned and stay. Pinned are leading runs too; so evicting never leaves an orphan.
4. Of a chain that has no room only the leading blocks that fit are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Stored(NamedTuple, Generic[Key]):
    """What one request changed: the leading blocks that were there, the new ones (parents first), and those that
    went for them (children first)."""

    hit: int
    added: list[Key]
    removed: list[Key]


class BlockCache(Generic[Key]):
    """`blocks_max` blocks at most."""

    def __init__(self, blocks_max: int) -> None:
        if blocks_max < 1:
            raise ValueError("a cache holds at least one block")
        self._blocks_max = blocks_max
        self._free: OrderedDict[Key, None] = OrderedDict()
        self._pinned: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._free) + len(self._pinned)

    def __contains__(self, key: Key) -> bool:
        return key in self._free or key in self._pinned

    @property
    def blocks_max(self) -> int:
        """How many blocks fit."""
        return self._blocks_max

    @property
    def pinned(self) -> int:
        """How many blocks requests use at the moment."""
        return len(self._pinned)

    def held(self, chain: Sequence[Key]) -> int:
        """How many leading blocks of the chain are here. Touches nothing."""
        free, pinned = self._free, self._pinned
        for at, key in enumerate(chain):
            if key not in free and key not in pinned:
                return at
        return len(chain)

    def store(self, chain: Sequence[Key]) -> Stored[Key]:
        """Take the chain in at once, and touch it: what a request that begins and ends here leaves behind."""
        stored = self.pin(chain)
        self.release(chain[: stored.hit + len(stored.added)])
        return stored

    def pin(self, chain: Sequence[Key]) -> Stored[Key]:
        """Take the chain in and hold it until `release` of the same blocks: the leading `hit + len(added)` ones."""
        free, pinned = self._free, self._pinned
        hit = self.held(chain)
        for key in chain[:hit]:
            if key in pinned:
                pinned[key] += 1
            else:
                del free[key]
                pinned[key] = 1
        added, removed = [], []
        for key in chain[hit:]:
            if len(free) + len(pinned) >= self._blocks_max:
                if not free:
                    break
                removed.append(free.popitem(last=False)[0])
            pinned[key] = 1
            added.append(key)
        return Stored(hit, added, removed)

    def release(self, chain: Sequence[Key]) -> None:
        """Let go of what `pin` held. The last block becomes the oldest of them."""
        free, pinned = self._free, self._pinned
        for key in reversed(chain):
            if pinned[key] == 1:
                del pinned[key]
                free[key] = None
            else:
                pinned[key] -= 1

    def abandon(self, chain: Sequence[Key], kept: int) -> list[Key]:
        """As `release`, but all after the first `kept` blocks never came to be and go; what went, children first.

        These MUST be blocks that the same `pin` added, and that no other request holds.
        """
        lost = [key for key in reversed(chain[kept:]) if self._pinned.pop(key, 0)]
        self.release(chain[:kept])
        return lost

    def clear(self) -> list[Key]:
        """Forget everything that no request uses; what went, children first."""
        gone = list(self._free)
        self._free.clear()
        return gone
