"""Encoded text, read: runs of base64, base32 and hexadecimal, and escapes that stand inside ordinary text.

1. Nothing is replaced: what is read is scanned as well as what it was read from.
2. A run is decoded when the result is text: ASCII, UTF-8, UTF-16, or any of these inside gzip. Of bytes that
   are text only in part, the longest printable stretch is kept.
3. Gzip is inflated to 64 KB at the most; what is longer is refused (TooLarge), never read in part.
4. The cost is linear in the text: a run is found by its end, its start by halting at the first other byte.
"""

from __future__ import annotations

import binascii
import html
import re
import zlib
from base64 import b32decode
from collections.abc import Iterator
from urllib.parse import unquote

from terraflow.classify.findings import TooLarge
from terraflow.classify.passage import BASE32, HEX, URLSAFE, run_start, run_stop

GZIP_MAX_BYTES = 64 * 1024
RUN_LEAST = 14
_STRETCH_LEAST = 9
_RAW_LEAST = 7

_RUN = URLSAFE + b"+/"
_BASE64_STANDARD = bytes.maketrans(b"-_", b"+/")
_JOINTS = bytes(0x20 if c in b"/-_+" else c for c in range(256))
_PRINTABLE = bytes(c for c in range(256) if 0x20 <= c < 0x7F or c in b"\t\r\n")
_STRETCHES = bytes(c if c in _PRINTABLE else 0 for c in range(256))
# The first of four base64 characters holds the upper six bits of a byte: these are the ones of printable ASCII.
_FIRST_OF_ASCII = b"CDIJKLMNOPQRSTUVWXYZabcdef"
_DOUBTFUL = bytes(c if c in _FIRST_OF_ASCII else ord("?") for c in range(256))
_PADDING = (b"", b"", b"==", b"=")
# The first of two hexadecimal digits of a printable character, and of UTF-16's zero byte.
_HIGH_OF_ASCII = b"0234567"
_PAIRS = HEX + b" :,"
_CODE_POINT = re.compile(r"\\[ux]\{([0-9a-fA-F]{1,6})\}")


def runs(data: bytes, ends: list[int]) -> Iterator[tuple[int, int]]:
    """The spans of the runs of base64 characters that stop at `ends` (ascending); a block's lines are joined."""
    block: tuple[int, int] | None = None
    last = -3
    for stop in ends:
        window = data[max(0, stop - 128) : stop]
        start = stop - len(window) + len(window.rstrip(_RUN))
        if start == stop - len(window) and start > 0:
            start = _far_start(data, stop)
        if block is not None and start - last <= 2 and data[last:start] in (b"\n", b"\r\n"):
            block = (block[0], stop)
        else:
            if block is not None:
                yield _whole(data, block)
            block = (start, stop)
        last = stop
    if block is not None:
        yield _whole(data, block)


def _whole(data: bytes, block: tuple[int, int]) -> tuple[int, int]:
    start, stop = block
    return (start, _last_line(data, stop)) if data[stop] in b"\r\n" else block


def _far_start(data: bytes, stop: int) -> int:
    """The start of a long run, looking four times as far each time."""
    reach = 512
    while (start := run_start(data, stop, _RUN, reach)) == stop - reach and start > 0:
        reach *= 4
    return start


def _last_line(data: bytes, stop: int) -> int:
    """Where a block ends whose last line is too short to be a run of its own."""
    line = stop + (2 if data[stop : stop + 2] == b"\r\n" else 1 if data[stop : stop + 1] == b"\n" else 0)
    tail = run_stop(data, line, _RUN, RUN_LEAST)
    return tail if line > stop and tail < line + RUN_LEAST and data[tail : tail + 1] in (b"=", b"\n", b"\x00") else stop


def read_run(run: bytes) -> list[str]:
    """The texts that a run may stand for; empty for nearly every run that is not an encoding."""
    if b"\n" in run:
        run = run.replace(b"\r", b"").replace(b"\n", b"")
    if run.isdigit():
        return [] if run[::2].strip(_HIGH_OF_ASCII) else _hexadecimal(run)
    texts: list[str] = []
    if not run.strip(HEX) or run[:2] == b"0x":
        texts += _hexadecimal(run)
    if not run.strip(BASE32) or (run.islower() and not run.upper().strip(BASE32)):
        whole = run[: len(run) - (len(run) % 8 in (1, 3, 6))].upper()
        texts += as_text(b32decode(whole + b"=" * (-len(whole) % 8)))
    # Text always gives upper-case letters: the first of four characters is one for digits, spaces and capitals.
    if not run.islower():
        texts += _read_base64(run)
        pieces = run.translate(_JOINTS).split() if not run.isalnum() else []
        for piece in pieces if len(pieces) > 1 else ():
            if len(piece) >= RUN_LEAST and not piece.islower():
                texts += _read_base64(piece)
    return texts


def _hexadecimal(run: bytes) -> list[str]:
    bare = run[2:] if run[:2] == b"0x" else run
    return as_text(bytes.fromhex(bare.decode("ascii"))) if len(bare) % 2 == 0 and not bare.strip(HEX) else []


def _read_base64(run: bytes) -> list[str]:
    """The run as base64, from its start and from any of the next three characters that could be one."""
    run = run.translate(_BASE64_STANDARD)
    texts = _base64(run)
    if len(run) > RUN_LEAST + 3:
        doubtful = run.translate(_DOUBTFUL)
        for shift in (1, 2, 3):
            firsts = doubtful[shift::4]
            if 4 * firsts.count(b"?") <= len(firsts):
                texts += _base64(run[shift:])
    return texts


def _base64(run: bytes) -> list[str]:
    return as_text(binascii.a2b_base64(run[:-1] if len(run) % 4 == 1 else run + _PADDING[len(run) % 4]))


def as_text(raw: bytes) -> list[str]:
    """Bytes as the texts they may hold, none if they hold none. Raises TooLarge for gzip above its bound."""
    if len(raw) < _RAW_LEAST:
        return []
    if raw[:3] == b"\x1f\x8b\x08":
        return _inflate(raw)
    # UTF-16 of one script repeats its upper byte, two characters on if something stands between all others.
    repeats = raw[1] == raw[3] or raw[1] == raw[5] or raw[0] == raw[2] or raw[0] == raw[4]
    wide = _utf16(raw) if repeats else []
    if raw.isascii():
        readable = 5 * len(raw.translate(None, _PRINTABLE)) <= 3 * len(raw)
        return [raw.decode("ascii"), *wide] if readable else [*wide, *_longest(raw)]
    try:
        return [raw.decode("utf-8"), *wide]
    except UnicodeDecodeError:
        return [*wide, *_longest(raw)]


def _longest(raw: bytes) -> list[str]:
    longest = max(raw.translate(_STRETCHES).split(b"\x00"), key=len)
    return [longest.decode("ascii")] if len(longest) >= _STRETCH_LEAST else []


def _utf16(raw: bytes) -> list[str]:
    """The bytes as UTF-16 if every second one of the first sixteen is drawn from a few: text is of one script."""
    high_last, high_first = len(set(raw[1:17:2])), len(set(raw[:16:2]))
    if min(high_last, high_first) > 3:
        return []
    big = raw[:2] == b"\xfe\xff" or (raw[:2] != b"\xff\xfe" and high_first < high_last)
    return [raw[: len(raw) & ~1].decode("utf-16-be" if big else "utf-16-le", "replace")]


def _inflate(raw: bytes) -> list[str]:
    try:
        inflated = zlib.decompressobj(31).decompress(raw, GZIP_MAX_BYTES + 1)
    except zlib.error:
        return []
    if len(inflated) > GZIP_MAX_BYTES:
        raise TooLarge(GZIP_MAX_BYTES)
    return as_text(inflated)


def pairs(data: bytes, ends: list[int]) -> Iterator[bytes]:
    """The rows of separated hexadecimal pairs (`34 31:31`) that stop at `ends`, without their separators."""
    for stop in ends:
        reach = 256
        while (start := run_start(data, stop, _PAIRS, reach)) == stop - reach and start > 0:
            reach *= 4
        digits = data[start:stop].translate(None, b" :,")
        yield digits[len(digits) % 2 :]


def unescape(text: str) -> str:
    r"""`text` with `\uXXXX`, `\xXX`, `\u{…}`, octal and JSON's short escapes, then `%XX`, then HTML's read."""
    if "\\" in text:
        text = _unescape_backslashes(text)
    if "%" in text:
        text = unquote(text, errors="replace")
    if "&" in text:
        text = html.unescape(text)
    return text


def byte_escapes_as_utf8(text: str) -> str:
    r"""Unescaped `text` whose `\xXX` spelled the bytes of UTF-8, not characters; what is above U+00FF is left out."""
    return text.encode("latin-1", "ignore").decode("utf-8", "replace")


_SHORT = {"n": "\n", "r": "\n", "t": "\t", "/": "/", '"': '"', "'": "'"}


def _unescape_backslashes(text: str) -> str:
    if "{" in text:
        text = _CODE_POINT.sub(lambda found: f"\\U{int(found[1], 16):08x}", text)
    escaped = text.replace("\\", "\\\\")
    for lead in "uUx0123":
        escaped = escaped.replace("\\\\" + lead, "\\" + lead)
    for lead, plain in _SHORT.items():
        escaped = escaped.replace("\\\\" + lead, plain)
    decoded = escaped.encode("ascii", "backslashreplace").decode("unicode_escape", "replace")
    return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def unquote_printable(text: str) -> str:
    """`text` as quoted-printable (RFC 2045), soft line breaks included."""
    return binascii.a2b_qp(text.encode("utf-8")).decode("utf-8", "replace")
