"""The form of a detector.

1. `anchors` are hyperscan expressions over bytes; an anchor says where a candidate ends, never that it is
   one.
2. `locate` is given the reading and the end offset of an anchor's match, and returns the value's span or
   None. It looks at a bounded number of bytes, makes no call outside, and raises only when there is a fault
   in it.
3. A reading begins and ends with a zero byte, so an anchor may always ask for one byte before and one after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from terraflow.classify.passage import Span
from terraflow.core.types import SensitiveType


class Detector(NamedTuple):
    """One row of the table of detectors."""

    name: str
    type: SensitiveType
    anchors: tuple[bytes, ...]
    locate: Callable[[bytes, int], Span | None]
    caseless: bool = False
