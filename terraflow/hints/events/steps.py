"""Work that is done in steps of some ms: a generator that yields between two of them and returns what they come to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Came = TypeVar("Came")


def ended(steps: Generator[None, None, Came]) -> Came:
    """What steps come to, taken without turns in between."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            came: Came = done.value
            return came


async def in_turns(steps: Generator[None, None, Came], turn: Callable[[], Awaitable[None]]) -> Came:
    """What steps come to; `turn` gives others theirs after each."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            came: Came = done.value
            return came
        await turn()
