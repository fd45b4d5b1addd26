"""What a scan found, and the data class that follows from it.

1. Nothing here holds text of the request: a finding is a type, a detector's name and a number.
2. The class is the most sensitive of what the caller declared, what was found, and what attachments count as.
3. Which class a finding means is the caller's table: the bundle's, as the contract raised it.
4. What cannot be scanned whole is refused by a typed exception; it is never cut and scanned in part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from terraflow.core.types import DataClass, SensitiveType


class ScanRefused(Exception):
    """The content was not classified, and so may not be sent."""


class TooLarge(ScanRefused):
    """More to read than the scan's bound, as text or after decoding."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"more than {bytes_max} bytes to scan")
        self.bytes_max = bytes_max


class TooDeep(ScanRefused):
    """The document is nested deeper than the bound."""

    def __init__(self, depth_max: int) -> None:
        super().__init__(f"nested deeper than {depth_max}")
        self.depth_max = depth_max


class Findings(NamedTuple):
    """The result of one scan.

    `counts` is the number of different values by detector; `bytes_scanned` the UTF-8 bytes of the strings given.
    `bytes_visited` (joined texts and decoded readings included) and `candidates` (matches of anchors and signs)
    count the work.
    """

    types: frozenset[SensitiveType]
    counts: Mapping[str, int]
    bytes_scanned: int
    bytes_visited: int
    candidates: int


class ClassDefaults(NamedTuple):
    """The class that each finding means, under one contract: the bundle's table with the contract's floors."""

    nothing: DataClass
    attachment: DataClass
    by_type: Mapping[SensitiveType, DataClass]


class Classification(NamedTuple):
    """The class and the sensitive types that policy decides on."""

    data_class: DataClass
    types: frozenset[SensitiveType]


def class_of(
    found: frozenset[SensitiveType],
    *,
    declared: DataClass | None,
    declared_types: frozenset[SensitiveType] = frozenset(),
    attachments: bool = False,
    defaults: ClassDefaults,
) -> Classification:
    """The request's class and types. A type that the table does not name counts as restricted."""
    types = found | declared_types
    classes = [defaults.by_type.get(t, DataClass.RESTRICTED) for t in types]
    if attachments:
        classes.append(defaults.attachment)
    if declared is not None:
        classes.append(declared)
    return Classification(max(classes, default=defaults.nothing), types)
