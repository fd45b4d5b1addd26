"""Reading collapsed stacks."""

from __future__ import annotations

from bench.profile_plane import listing, shares, thread_listing

STACKS = """\
main (a.py:1);serve (a.py:9);decide (b.py:3) 30
main (a.py:1);serve (a.py:9) 10
main (a.py:1);walk (c.py:1);walk (c.py:1) 60
"""


def test_own_time_is_the_innermost_and_recursion_counts_once() -> None:
    own, within, total = shares(STACKS)
    assert total == 100
    assert own == {"decide (b.py:3)": 30, "serve (a.py:9)": 10, "walk (c.py:1)": 60}
    assert within == {"main (a.py:1)": 100, "serve (a.py:9)": 40, "decide (b.py:3)": 30, "walk (c.py:1)": 60}
    assert listing(own, total, 2).splitlines() == ["  60.0%  walk (c.py:1)", "  30.0%  decide (b.py:3)"]


def test_no_samples_are_no_shares() -> None:
    assert shares("") == ({}, {}, 0)
    assert listing(*shares("")[::2], 5) == ""


def test_threads_are_listed_by_what_they_worked_in_between() -> None:
    before, after = {1: 5.0, 2: 1.0, 3: 0.0}, {1: 6.0, 2: 3.0, 3: 0.0, 4: 0.5}
    assert thread_listing({1: "main", 2: "commit", 3: "idle"}, before, after, 4.0).splitlines() == [
        "  50.0%  commit",
        "  25.0%  main",
        "  12.5%  not of Python",
    ]
