"""The block cache against its rules: leading runs only, children before parents, pins hold, never more than fits."""

from __future__ import annotations

import random

import pytest

from terraflow.hints.engine.cache import BlockCache


def test_what_was_stored_is_hit_and_no_further() -> None:
    cache: BlockCache[str] = BlockCache(8)
    assert cache.store(["a", "b", "c"]) == (0, ["a", "b", "c"], [])
    assert cache.store(["a", "b", "x"]) == (2, ["x"], [])
    assert cache.held(["a", "z", "b"]) == 1
    assert len(cache) == 4


def test_children_go_before_their_parents() -> None:
    cache: BlockCache[str] = BlockCache(3)
    cache.store(["a", "b", "c"])
    assert cache.store(["x", "y"]) == (0, ["x", "y"], ["c", "b"])
    assert cache.held(["a", "b"]) == 1


def test_a_touch_saves_the_whole_run() -> None:
    cache: BlockCache[str] = BlockCache(4)
    cache.store(["a", "b"])
    cache.store(["x", "y"])
    cache.store(["a", "b"])
    assert cache.store(["n"]).removed == ["y"]


def test_a_chain_that_does_not_fit_keeps_its_leading_blocks() -> None:
    cache: BlockCache[int] = BlockCache(3)
    stored = cache.store([1, 2, 3, 4, 5])
    assert (stored.added, stored.removed) == ([1, 2, 3], [])
    assert cache.store([1, 2, 3, 4, 5]) == (3, [], [])


def test_what_is_in_use_stays() -> None:
    cache: BlockCache[str] = BlockCache(3)
    pinned = cache.pin(["a", "b"])
    assert cache.store(["x", "y"]) == (0, ["x"], [])
    assert cache.pin(["a", "b"]) == (2, [], [])
    cache.release(["a", "b"])
    assert cache.pinned == 2, "the other request still holds them"
    cache.release(["a", "b"][: pinned.hit + len(pinned.added)])
    assert cache.store(["p", "q", "r"]).removed == ["x", "b", "a"]


def test_clearing_leaves_what_is_in_use() -> None:
    cache: BlockCache[str] = BlockCache(9)
    cache.pin(["a"])
    cache.store(["x", "y"])
    assert cache.clear() == ["y", "x"]
    assert "a" in cache and "x" not in cache


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BlockCache[int](0)


def test_its_rules_hold_over_random_requests() -> None:
    """Every block held has its parent held; the sum of additions and removals is what is held."""
    luck = random.Random(7)
    cache: BlockCache[tuple[int, ...]] = BlockCache(12)
    running: list[list[tuple[int, ...]]] = []
    told: set[tuple[int, ...]] = set()
    for _ in range(4000):
        path = [luck.randrange(3) for _ in range(luck.randrange(1, 6))]
        chain = [tuple(path[: at + 1]) for at in range(len(path))]
        stored = cache.pin(chain)
        told |= set(stored.added)
        assert told >= set(stored.removed)
        told -= set(stored.removed)
        running.append(chain[: stored.hit + len(stored.added)])
        if len(running) > 2 or luck.random() < 0.5:
            cache.release(running.pop(luck.randrange(len(running))))
        assert len(told) == len(cache) <= 12
        assert all(key in cache and (len(key) == 1 or key[:-1] in cache) for key in told)
