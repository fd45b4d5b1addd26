"""The two replicas that a prompt names: always the same, and moved by nothing but their own comings and goings."""

from __future__ import annotations

from collections import Counter

from terraflow.core.affinity import two_named

NAMES = [f"r{at}" for at in range(8)]


def named(names: list[str], known_by: bytes) -> list[str]:
    return [names[at] for at in two_named(names, known_by)]


def test_two_are_named_whatever_their_order_and_one_alone_twice() -> None:
    for known_by in (b"", b"a", b"b" * 64):
        first, second = named(NAMES, known_by)
        assert first != second
        assert named(NAMES[::-1], known_by) == [first, second]
    assert two_named(["r"], b"a") == (0, 0)


def test_when_a_replica_goes_only_its_own_prompts_move_and_to_their_second() -> None:
    for number in range(400):
        first, second = named(NAMES, b"%d" % number)
        left = [name for name in NAMES if name != "r3"]
        now_first, now_second = named(left, b"%d" % number)
        assert now_first == (second if first == "r3" else first)
        assert "r3" in (first, second) or now_second == second


def test_prompts_spread() -> None:
    count = Counter(name for number in range(800) for name in named(NAMES, b"%d" % number))
    assert all(150 < count[name] < 260 for name in NAMES)
