"""National identity numbers: the US social security number and India's Aadhaar.

1. A social security number counts when it is grouped 3-2-4 with one kind of separator; nine bare digits need
   a word such as "SSN". Areas 000, 666 and 900–999, group 00 and serial 0000 were never issued (Social
   Security Administration, POMS RM 10201.035).
2. An Aadhaar has twelve digits, begins with 2 to 9 and ends with a Verhoeff digit (UIDAI). It counts when
   grouped 4-4-4; twelve bare digits need a word such as "Aadhaar".
3. A word such as "order" just before asks for the number's own word near it.
"""

from __future__ import annotations

from terraflow.classify.checksums import verhoeff
from terraflow.classify.detectors.row import Detector
from terraflow.classify.passage import DIGITS, Span, apart, in_context, otherwise
from terraflow.core.types import SensitiveType

SSN_WORDS = frozenset(b"ssn ssns social security socialsecurity taxpayer tin itin".split())
AADHAAR_WORDS = frozenset(b"aadhaar aadhar adhaar adhar uidai uid".split())
OTHER_WORDS = frozenset(
    b"order orders isbn ean upc gtin sku imei tracking track parcel invoice ticket serial barcode part model"
    b" reference ref confirmation transaction txn version build".split()
)
_JOINTS = b" .-"
_HYPHEN = ord("-")


def _stands_alone(data: bytes, start: int, stop: int, joint: int) -> bool:
    """Whether the number is not the middle of a longer one that goes on with the same separator."""
    if not apart(data, start, stop):
        return False
    before = data[start - 1] == joint and data[start - 2] in DIGITS
    return not before and not (data[stop] == joint and data[stop + 1] in DIGITS)


def _issued(digits: bytes) -> bool:
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in (b"000", b"666") and area[:1] != b"9" and group != b"00" and serial != b"0000"


def locate_ssn(data: bytes, end: int) -> Span | None:
    """`123-45-6789`, whose last digit is two bytes before `end`."""
    start, stop = end - 12, end - 1
    joint = data[start + 3]
    digits = data[start : start + 3] + data[start + 4 : start + 6] + data[start + 7 : stop]
    if joint != data[start + 6] or not _issued(digits) or not _stands_alone(data, start, stop, joint):
        return None
    doubtful = otherwise(data, start, OTHER_WORDS)
    return None if doubtful and not in_context(data, start, stop, SSN_WORDS) else (start, stop)


def locate_bare_ssn(data: bytes, end: int) -> Span | None:
    """Nine bare digits in the context of a social security number."""
    start, stop = end - 10, end - 1
    if not _issued(data[start:stop]) or not _stands_alone(data, start, stop, _HYPHEN):
        return None
    return (start, stop) if in_context(data, start, stop, SSN_WORDS) else None


def locate_aadhaar(data: bytes, end: int) -> Span | None:
    """`2345 6789 0124`, whose last digit is two bytes before `end`."""
    start, stop = end - 15, end - 1
    joint = data[start + 4]
    digits = data[start : start + 4] + data[start + 5 : start + 9] + data[start + 10 : stop]
    goes_on = data[stop] == joint and data[stop + 1] in DIGITS
    if joint != data[start + 9] or goes_on or not verhoeff(digits) or not _stands_alone(data, start, stop, joint):
        return None
    doubtful = otherwise(data, start, OTHER_WORDS)
    return None if doubtful and not in_context(data, start, stop, AADHAAR_WORDS) else (start, stop)


def locate_bare_aadhaar(data: bytes, end: int) -> Span | None:
    """Twelve bare digits in the context of an Aadhaar."""
    start, stop = end - 13, end - 1
    if not verhoeff(data[start:stop]) or not _stands_alone(data, start, stop, _HYPHEN):
        return None
    return (start, stop) if in_context(data, start, stop, AADHAAR_WORDS) else None


NATIONAL = (
    Detector("us_ssn", SensitiveType.PII, (rb"[0-9]{3}[ .\-][0-9]{2}[ .\-][0-9]{4}[^0-9]",), locate_ssn),
    Detector("us_ssn", SensitiveType.PII, (rb"[^0-9][0-9]{9}[^0-9]",), locate_bare_ssn),
    Detector("aadhaar", SensitiveType.PII, (rb"[2-9][0-9]{3}[ .\-][0-9]{4}[ .\-][0-9]{4}[^0-9]",), locate_aadhaar),
    Detector("aadhaar", SensitiveType.PII, (rb"[^0-9][2-9][0-9]{11}[^0-9]",), locate_bare_aadhaar),
)
