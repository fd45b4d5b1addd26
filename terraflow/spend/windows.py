"""Windows are keys, not resets: `2026-11-30T14` for an hour, `2026-11` for a month, both UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from terraflow.core.budget import Window
from terraflow.core.types import MICRO, Instant

HOUR_S = 3_600


def window_key(window: Window, at: Instant) -> str:
    """The key of the window that holds an instant."""
    return _key(window, at // (HOUR_S * MICRO))


@lru_cache(maxsize=64)
def _key(window: Window, hours: int) -> str:
    return _hour(hours).strftime("%Y-%m-%dT%H" if window is Window.HOUR else "%Y-%m")


def _hour(hours: int) -> datetime:
    return datetime.fromtimestamp(hours * HOUR_S, UTC)
