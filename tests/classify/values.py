"""Valid identifiers drawn by hypothesis. Check digits are found by trying, with plain formulas of the tests' own."""

from __future__ import annotations

from hypothesis import strategies as st

from terraflow.classify.detectors.bank import STRUCTURES

PLACES_OF_CARDS = (
    ("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("2720", 16), ("34", 15), ("37", 15), ("6011", 16), ("65", 16),
    ("3528", 16), ("36", 14), ("38", 14), ("62", 16), ("508", 16), ("81", 16), ("4", 19), ("62", 19),
)  # fmt: skip


def luhn_sum(digits: str) -> int:
    """The Luhn sum, as a schoolbook writes it: double every second digit from the right, add the digits."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value // 10 + value % 10
    return total


_D = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 0, 6, 7, 8, 9, 5], [2, 3, 4, 0, 1, 7, 8, 9, 5, 6],
    [3, 4, 0, 1, 2, 8, 9, 5, 6, 7], [4, 0, 1, 2, 3, 9, 5, 6, 7, 8], [5, 9, 8, 7, 6, 0, 4, 3, 2, 1],
    [6, 5, 9, 8, 7, 1, 0, 4, 3, 2], [7, 6, 5, 9, 8, 2, 1, 0, 4, 3], [8, 7, 6, 5, 9, 3, 2, 1, 0, 4],
    [9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
]  # fmt: skip
_P = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 5, 7, 6, 2, 8, 3, 0, 9, 4], [5, 8, 0, 3, 7, 9, 6, 1, 4, 2],
    [8, 9, 1, 6, 0, 4, 3, 5, 2, 7], [9, 4, 5, 3, 1, 2, 6, 8, 7, 0], [4, 2, 8, 6, 5, 7, 3, 9, 0, 1],
    [2, 7, 9, 3, 8, 0, 6, 4, 1, 5], [7, 0, 4, 6, 9, 1, 3, 2, 5, 8],
]  # fmt: skip


def verhoeff_state(digits: str) -> int:
    """Verhoeff's check by his published tables, written out."""
    state = 0
    for place, digit in enumerate(reversed(digits)):
        state = _D[state][_P[place % 8][int(digit)]]
    return state


def iban_remainder(code: str) -> int:
    return int("".join(str(int(c, 36)) for c in code[4:] + code[:4])) % 97


@st.composite
def cards(draw: st.DrawFn) -> str:
    prefix, length = draw(st.sampled_from(PLACES_OF_CARDS))
    body = prefix + draw(st.text("0123456789", min_size=length - 1 - len(prefix), max_size=length - 1 - len(prefix)))
    return next(body + last for last in "0123456789" if luhn_sum(body + last) % 10 == 0)


@st.composite
def aadhaars(draw: st.DrawFn) -> str:
    body = draw(st.sampled_from("23456789")) + draw(st.text("0123456789", min_size=10, max_size=10))
    return next(body + last for last in "0123456789" if verhoeff_state(body + last) == 0)


_COUNTRIES = dict(zip(STRUCTURES.split()[::2], STRUCTURES.split()[1::2], strict=True))
_SIGNS = {"n": "0123456789", "a": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "c": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


@st.composite
def ibans(draw: st.DrawFn) -> str:
    country = draw(st.sampled_from(sorted(_COUNTRIES)))
    body, size = "", ""
    for sign in _COUNTRIES[country]:
        if sign.isdigit():
            size += sign
        else:
            body += draw(st.text(_SIGNS[sign], min_size=int(size), max_size=int(size)))
            size = ""
    return f"{country}{98 - iban_remainder(country + '00' + body):02d}{body}"


@st.composite
def ssns(draw: st.DrawFn) -> str:
    area = draw(st.integers(1, 899).filter(lambda n: n != 666))
    return f"{area:03d}-{draw(st.integers(1, 99)):02d}-{draw(st.integers(1, 9999)):04d}"


def grouped(digits: str, joint: str = " ", size: int = 4) -> str:
    return joint.join(digits[at : at + size] for at in range(0, len(digits), size))


VALUES = {"payment_card": cards(), "iban": ibans(), "aadhaar": aadhaars().map(grouped), "us_ssn": ssns()}
