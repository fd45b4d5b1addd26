"""Check digits and check sums of well-known identifiers, over ASCII bytes.

Sources: ISO/IEC 7812-1 (Luhn), ISO 7064 as used by ISO 13616 (mod 97-10), J. Verhoeff, "Error Detecting
Decimal Codes" (1969), and GitHub's and npm's announcements of their token formats of 2021 (CRC-32 in base
62).
"""

from __future__ import annotations

import zlib

_ZERO = ord("0")
_DOUBLED = bytes(
    _ZERO + (2 * (c - _ZERO) - 9 if c - _ZERO > 4 else 2 * (c - _ZERO)) if 0 <= c - _ZERO <= 9 else c
    for c in range(256)
)


def luhn(digits: bytes) -> bool:
    """Whether the last of the ASCII `digits` is the Luhn check digit of the others."""
    total = sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED))
    return (total - _ZERO * len(digits)) % 10 == 0


def _dihedral(a: int, b: int) -> int:
    """The product in the symmetry group of the pentagon: 0–4 are rotations, 5–9 reflections."""
    turned = (a % 5 + b) % 5 if a < 5 else (a - b) % 5
    return turned + 5 * ((a >= 5) ^ (b >= 5))


def _permutations() -> tuple[bytes, ...]:
    step = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)
    rows = [tuple(range(10))]
    for _ in range(7):
        rows.append(tuple(step[d] for d in rows[-1]))
    return tuple(bytes(row) for row in rows)


_PERMUTED = _permutations()
_PRODUCT = tuple(bytes(_dihedral(a, b) for b in range(10)) for a in range(10))


# Twelve digits in six steps: for each two places, what a pair of digits contributes to the product.
_PAIRED = tuple(
    {
        b"%d%d" % (left, right): _PRODUCT[_PERMUTED[place & 7][right]][_PERMUTED[(place + 1) & 7][left]]
        for left in range(10)
        for right in range(10)
    }
    for place in range(0, 8, 2)
)


def verhoeff(digits: bytes) -> bool:
    """Whether the last of the ASCII `digits` is the Verhoeff check digit of the others."""
    state = 0
    for step, at in enumerate(range(len(digits) - 2, -1, -2)):
        state = _PRODUCT[state][_PAIRED[step & 3][digits[at : at + 2]]]
    if len(digits) % 2:
        state = _PRODUCT[state][_PERMUTED[(len(digits) - 1) & 7][digits[0] - _ZERO]]
    return state == 0


_TEN = ord("A") - 10
_VALUES = {ord(c): str(int(c, 36)) for c in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def mod97(code: bytes) -> bool:
    """Whether an IBAN (upper-case ASCII letters and digits, country first) leaves the remainder 1."""
    if code[4:].isdigit():
        return int(b"%b%d%d%b" % (code[4:], code[0] - _TEN, code[1] - _TEN, code[2:4])) % 97 == 1
    return int("".join([_VALUES[c] for c in code[4:] + code[:4]])) % 97 == 1


_BASE62 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def crc32_base62(body: bytes) -> bool:
    """Whether the last six characters of `body` are the CRC-32 of the others in base 62, padded with zeros."""
    number, signs = zlib.crc32(body[:-6]), bytearray()
    for _ in range(6):
        number, sign = divmod(number, 62)
        signs.append(_BASE62[sign])
    return bytes(reversed(signs)) == body[-6:]
