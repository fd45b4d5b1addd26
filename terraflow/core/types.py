"""The small words of the domain, as types.

1. Money is an integer of micro-dollars (1 USD = 1 000 000); it is never a float.
2. Ordered vocabularies (data class, consequence tier, priority) compare by rank, so "more sensitive" is `>`.
3. Wall-clock instants are integer microseconds since the epoch, UTC; durations on the monotonic clock are float
   seconds and never leave the process.
"""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum
from typing import Any, NewType

MicroUsd = NewType("MicroUsd", int)
Instant = NewType("Instant", int)
"""Microseconds since 1970-01-01T00:00:00Z."""

RequestId = NewType("RequestId", str)
"""`req_` and 32 lower-case hexadecimal digits (128 random bits)."""

Json = None | bool | int | float | str | list[Any] | dict[str, Any]

TENANT_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

MICRO = 1_000_000


class DataClass(IntEnum):
    """How sensitive a request's content is; greater is more sensitive."""

    PUBLIC = 0
    INTERNAL = 1
    CONFIDENTIAL = 2
    RESTRICTED = 3

    @property
    def label(self) -> str:
        """The name used in headers, bundles and evidence, e.g. `restricted`."""
        return self.name.lower()


class SensitiveType(StrEnum):
    """A kind of content that a capability may be forbidden to receive."""

    PII = "pii"
    PCI = "pci"
    PHI = "phi"
    CREDENTIALS = "credentials"


class Priority(IntEnum):
    """P0 is served first."""

    P0 = 0
    P1 = 1
    P2 = 2
    P3 = 3


DATA_CLASSES = {c.label: c for c in DataClass}
SENSITIVE_TYPES = {t.value: t for t in SensitiveType}


def usd(amount: int) -> str:
    """Decimal dollars of an amount in micro-dollars, exact: `usd(1_250_000) == "1.25"`, `usd(0) == "0"`."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    whole, micro = divmod(amount, MICRO)
    return f"{sign}{whole}.{micro:06d}".rstrip("0") if micro else f"{sign}{whole}"


_USD = re.compile(r"(?P<whole>0|[1-9][0-9]{0,9})(?:\.(?P<micro>[0-9]{1,6}))?")


def parse_usd(text: str) -> MicroUsd:
    """Micro-dollars of a plain decimal such as `"0.15"`. Raises ValueError for signs, exponents, or a fraction
    finer than a micro-dollar: an amount that cannot be kept exactly is refused, never rounded."""
    found = _USD.fullmatch(text)
    if found is None:
        raise ValueError("an amount is a decimal of at most ten digits and six places, such as 0.15")
    return MicroUsd(int(found["whole"]) * MICRO + int((found["micro"] or "0").ljust(6, "0")))
