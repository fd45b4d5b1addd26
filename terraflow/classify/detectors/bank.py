"""International bank account numbers (ISO 13616): a country's own length and structure, and mod 97.

Separators between groups are spaces, hyphens or full stops. Letters may be of either case. The structures are
those of the SWIFT IBAN registry: `n` digits, `a` upper-case letters, `c` letters or digits.
"""

from __future__ import annotations

import re

from terraflow.classify.checksums import mod97
from terraflow.classify.detectors.row import Detector
from terraflow.classify.passage import DIGITS, UPPER, Span, apart
from terraflow.core.types import SensitiveType

_SEPARATORS = b" -."

STRUCTURES = """
AD 8n12c     AE 19n       AL 8n16c     AT 16n       AZ 4a20c     BA 16n       BE 12n       BG 4a6n8c
BH 4a14c     BI 23n       BR 23n1a1c   BY 4c4n16c   CH 5n12c     CR 18n       CY 8n16c     CZ 20n
DE 18n       DJ 23n       DK 14n       DO 4c20n     EE 16n       EG 25n       ES 20n       FI 14n
FK 2a12n     FO 14n       FR 10n11c2n  GB 4a14n     GE 2a16n     GI 4a15c     GL 14n       GR 7n16c
GT 24c       HN 4a20n     HR 17n       HU 24n       IE 4a14n     IL 19n       IQ 4a15n     IS 22n
IT 1a10n12c  JO 4a4n18c   KW 4a22c     KZ 3n13c     LB 4n20c     LC 4a24c     LI 5n12c     LT 16n
LU 3n13c     LV 4a13c     LY 21n       MC 10n11c2n  MD 20c       ME 18n       MK 3n10c2n   MN 16n
MR 23n       MT 4a5n18c   MU 4a19n3a   NI 4a20n     NL 4a10n     NO 11n       OM 3n16c     PK 4a16c
PL 24n       PS 4a21c     PT 21n       QA 4a21c     RO 4a16c     RS 18n       RU 14n15c    SA 2n18c
SC 4a20n3a   SD 14n       SE 20n       SI 15n       SK 20n       SM 1a10n12c  SO 19n       ST 21n
SV 4a20n     TL 19n       TN 20n       TR 5n1n16c   UA 6n19c     VA 18n       VG 4a16n     XK 16n
YE 4a4n18c
"""

_ALPHABETS = {"n": DIGITS, "a": UPPER, "c": DIGITS + UPPER}


def _parse(structure: str) -> tuple[tuple[int, bytes], ...]:
    return tuple((int(size), _ALPHABETS[kind]) for size, kind in re.findall(r"(\d+)([nac])", structure))


_COUNTRIES = {
    country.encode(): (4 + sum(size for size, _ in _parse(structure)), _parse(structure))
    for country, structure in zip(STRUCTURES.split()[::2], STRUCTURES.split()[1::2], strict=True)
}


def locate_iban(data: bytes, end: int) -> Span | None:
    """The IBAN whose country and check digits are the four bytes before `end`."""
    start = end - 4
    needed, structure = _COUNTRIES[data[start : start + 2].upper()]
    code = data[start : start + 2 * needed].translate(None, _SEPARATORS)[:needed].upper()
    at = 4
    for size, alphabet in structure:
        part = code[at : at + size]
        if len(part) < size or part.strip(alphabet):
            return None
        at += size
    if not mod97(code):
        return None
    stop = start
    for _ in range(needed):
        while data[stop] in _SEPARATORS:
            stop += 1
        stop += 1
    return (start, stop) if apart(data, start, stop) else None


BANK = (
    Detector(
        "iban",
        SensitiveType.PII,
        (rb"(?:" + b"|".join(sorted(_COUNTRIES)) + rb")[0-9]{2}",),
        locate_iban,
        caseless=True,
    ),
)
