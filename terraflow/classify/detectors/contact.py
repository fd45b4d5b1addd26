"""E-mail addresses and telephone numbers.

1. An address has a host with a top-level domain of letters; `user:word@host` in a URL, `git@host:` and the
   names of image files (`icon@2x.png`) are none.
2. A telephone number counts when it is written as one: international with `+` and a country's code, or in the
   grouped form of the US and Canada, the UK or India. Ten or eleven bare digits need a word such as "phone".
"""

from __future__ import annotations

from terraflow.classify.detectors.row import Detector
from terraflow.classify.passage import (
    ALNUM,
    DIGITS,
    LETTERS,
    WORD,
    Span,
    in_context,
    otherwise,
    run_start,
    run_stop,
)
from terraflow.core.types import SensitiveType

_LOCAL = ALNUM + b"._%+-'"
_HOST = ALNUM + b".-"
_FILE_ENDINGS = frozenset(b"png jpg jpeg gif svg webp ico avif css js ts jsx tsx mjs json html map".split())
_COLON = ord(":")

PHONE_WORDS = frozenset(
    b"phone phones telephone tel mobile cell cellphone call whatsapp sms text fax contact ph mob".split()
)
OTHER_WORDS = frozenset(b"order isbn ean upc sku tracking invoice ticket serial ref reference version id".split())

# First two digits of the ITU-T E.164 country codes, apart from 1 and 7.
_CODES = frozenset(
    b"20 21 22 23 24 25 26 27 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56"
    b" 57 58 59 60 61 62 63 64 65 66 67 68 69 80 81 82 84 85 86 87 88 90 91 92 93 94 95 96 97 98 99".split()
)
_WRITTEN = DIGITS + b" ().-/"
_TO_SPACE = bytes(0x20 if c in b"().-/" else c for c in range(256))
_UK_SIZES = frozenset({(3, 4, 4), (5, 6), (4, 3, 4), (5, 3, 3), (4, 7)})


def locate_email(data: bytes, end: int) -> Span | None:
    """The address whose host's first label ends three bytes before `end`."""
    at = data.rfind(b"@", max(0, end - 67), end)
    if at < 0:
        return None
    start = run_start(data, at, _LOCAL, 64)
    start += len(data[start:at]) - len(data[start:at].lstrip(b".-'%+"))
    stop = run_stop(data, at + 1, _HOST, 253)
    host = data[at + 1 : stop].rstrip(b".-")
    stop = at + 1 + len(host)
    labels = host.lower().split(b".")
    top = labels[-1]
    if start >= at or len(labels) < 2 or not all(labels) or top in _FILE_ENDINGS:
        return None
    if not (2 <= len(top) <= 24 and not top.strip(LETTERS)) and not top.startswith(b"xn--"):
        return None
    if data[start:at] == b"git" and data[stop] == _COLON:
        return None
    return None if _in_url(data, start) else (start, stop)


def _in_url(data: bytes, start: int) -> bool:
    """Whether a URL's user part stands just before, so that what looks like a name is a password."""
    if data[start - 1] != _COLON:
        return False
    user = run_start(data, start - 1, WORD + b"-.%", 64)
    return data[user - 2 : user] == b"//"


def locate_international(data: bytes, end: int) -> Span | None:
    """The number whose `+` is eight bytes before `end`. Groups beyond E.164's fifteen digits are left out."""
    start = end - 8
    window = data[start + 1 : run_stop(data, start + 1, _WRITTEN, 28)]
    digits, stop, sizes, most = b"", start + 1, [], 11 if window.lstrip(b"( ")[:1] == b"1" else 15
    for group in window.translate(_TO_SPACE).split():
        if len(digits) + len(group) > most:
            break
        stop = data.find(group, stop) + len(group)
        digits += group
        sizes.append(len(group))
    if data[start - 1] in WORD or len(digits) < 8 or sizes[:3] == [4, 2, 2]:
        return None
    if digits[:1] == b"1":
        return (start, stop) if len(digits) == 11 and digits[1] not in b"01" else None
    return (start, stop) if digits[:1] == b"7" or digits[:2] in _CODES else None


def _clear(data: bytes, start: int, stop: int) -> bool:
    """Whether neither digit, letter nor a joint with more digits touches the number."""
    before, after = data[start - 1], data[stop]
    if before in WORD or after in WORD:
        return False
    joined_before = before in b".-/" and data[start - 2] in DIGITS
    return not joined_before and not (after in b".-/" and data[stop + 1] in DIGITS)


def locate_north_american(data: bytes, end: int) -> Span | None:
    """`(415) 555-2671`, `415-555-2671`, `1.415.555.2671`; spaces alone need context. `end` is one past it."""
    stop = end - 1
    body = data[run_start(data, stop, DIGITS + b" ().-", 20) : stop]
    digits = body.translate(None, b" ().-")[-10:]
    if len(digits) < 10 or digits[0] in b"01" or digits[3] in b"01":
        return None
    closing = data.rfind(b")", stop - 11, stop)
    start = closing - 3 if closing > 0 else stop - 12
    if data[start - 1] in b"(":
        start -= 1
    start -= next((len(lead) for lead in (b"+1 ", b"1-", b"1.", b"1 ") if data[start - 3 : start].endswith(lead)), 0)
    if not _clear(data, start, stop) or otherwise(data, start, OTHER_WORDS):
        return None
    plain = not data[start:stop].strip(DIGITS + b" ")
    return (start, stop) if not plain or in_context(data, start, stop, PHONE_WORDS) else None


def locate_grouped(data: bytes, end: int) -> Span | None:
    """A UK number (`020 7946 0958`, `07700 900123`) or an Indian one (`98765 43210`). `end` is one past it.

    Two numbers of five digits inside a row of numbers need a word such as "phone".
    """
    stop = end - 1
    groups = data[run_start(data, stop, DIGITS + b" ()-", 22) : stop].translate(_TO_SPACE).split()
    for taken in (3, 2):
        sizes = tuple(map(len, groups[-taken:]))
        first = groups[-taken] if taken <= len(groups) else b""
        uk = first[:1] == b"0" and first[1:2] in (b"1", b"2", b"3", b"7") and sizes in _UK_SIZES
        india = sizes in {(5, 5), (6, 5)} and first.lstrip(b"0")[:1] in (b"6", b"7", b"8", b"9")
        if not uk and not india:
            continue
        start = data.rfind(first, 0, stop - sum(sizes[1:]))
        start -= data[start - 1] in b"("
        if not _clear(data, start, stop) or otherwise(data, start, OTHER_WORDS):
            return None
        row = len(groups) > taken or (data[stop] in b" " and data[stop + 1] in DIGITS)
        return (start, stop) if uk or not row or in_context(data, start, stop, PHONE_WORDS) else None
    return None


def locate_bare(data: bytes, end: int) -> Span | None:
    """Ten or eleven bare digits beside a word such as "phone"."""
    stop = end - 1
    start = run_start(data, stop, DIGITS, 12)
    if not _clear(data, start, stop) or not in_context(data, start, stop, PHONE_WORDS, reach=32):
        return None
    return None if otherwise(data, start, OTHER_WORDS, reach=20) else (start, stop)


CONTACT = (
    Detector("email", SensitiveType.PII, (rb"[A-Za-z0-9_%+\-'.]@[A-Za-z0-9\-]+\.[A-Za-z0-9]{2}",), locate_email),
    Detector("phone", SensitiveType.PII, (rb"\+[0-9(][0-9 ().\-/]{6}",), locate_international),
    Detector(
        "phone",
        SensitiveType.PII,
        (rb"[2-9][0-9]{2}(?:[ .\-]|\)|\) )[2-9][0-9]{2}[ .\-][0-9]{4}[^0-9]",),
        locate_north_american,
    ),
    Detector(
        "phone",
        SensitiveType.PII,
        (
            rb"0[1-37][0-9]{1,3}\)?[ \-][0-9]{3,4}[ \-]?[0-9]{3,4}[^0-9]",
            rb"0[1-37][0-9]{1,3}\)?[ \-][0-9]{6}[^0-9]",
            rb"[6-9][0-9]{4}[ \-][0-9]{5}[^0-9]",
        ),
        locate_grouped,
    ),
    Detector("phone", SensitiveType.PII, (rb"[^0-9][0-9]{10,11}[^0-9]",), locate_bare),
)
