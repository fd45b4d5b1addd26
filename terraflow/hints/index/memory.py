"""Flat memory that grows without a pause: zeroed, of a size fixed at the start, and taken only as it is touched."""

from __future__ import annotations

import mmap
import struct
from typing import Any

_MAPPED_BYTES_MIN = 1 << 16


def region(kind: str, places: int) -> Any:
    """A view of `places` zeros of a struct format ("i", "q", "d", "Q", "B").

    A large one is mapped: its untouched pages cost nothing, it is private, so that a forked process has its own, and
    its pages are never given back. A small one is a bytearray. Neither is walked by the garbage collector.
    """
    size = max(1, places) * struct.calcsize(kind)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory: Any = bytearray(size) if size < _MAPPED_BYTES_MIN else mmap.mmap(-1, size, flags=private)
    return memoryview(memory).cast(kind)  # type: ignore[call-overload]
