"""The readings of a text: as it stands, with its characters folded, and with what is encoded in it decoded.

1. Depth 0 is the text and its fold. Depth n+1 is what the encodings in depth n decode to, up to `DEPTH_MAX`.
2. A run of an encoding is decoded once, however many readings it appears in; a reading that came up before is
   not read again.
3. What an anchor did not point at is not looked for: a text without signs of an encoding costs nothing here.
4. The signs are rows of `SIGNS`; the scanner compiles them beside the detectors' anchors and reports them
   back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from terraflow.classify.decode import byte_escapes_as_utf8, pairs, read_run, runs, unescape, unquote_printable

DEPTH_MAX = 4


class Sign(Enum):
    """What a sign in the text announces."""

    RUN = auto()
    PAIRS = auto()
    ESCAPE = auto()
    QUOTED_PRINTABLE = auto()
    CONTROL = auto()


class SignRow(NamedTuple):
    """An expression that announces an encoding. `every`: each match's end is needed."""

    sign: Sign
    anchor: bytes
    every: bool


SIGNS = (
    SignRow(Sign.RUN, rb"[A-Za-z0-9+/_\-]{14}[^A-Za-z0-9+/_\-]", True),
    SignRow(Sign.PAIRS, rb"(?:[0-9A-Fa-f]{2}[ :,]){8}[0-9A-Fa-f]{2}[^0-9A-Fa-f :,]", True),
    SignRow(Sign.PAIRS, rb"(?:[0-9A-Fa-f]{2}[ :,]){8}[0-9A-Fa-f]{2}[ :,][^0-9A-Fa-f]", True),
    SignRow(Sign.ESCAPE, rb"\\(?:[uUx0-3][0-9A-Fa-f{]|[nrt/\"'])", False),
    SignRow(Sign.ESCAPE, rb"%[0-9A-Fa-f]{2}", False),
    SignRow(Sign.ESCAPE, rb"&(?:#[0-9xX]|[A-Za-z]{2})", False),
    SignRow(Sign.QUOTED_PRINTABLE, rb"=(?:[2-7C-F][0-9A-F]|\r?\n)", False),
    SignRow(Sign.CONTROL, rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]", False),
)


class Signs(NamedTuple):
    """The signs found in one reading: which there are, and the ends of the runs and of the rows of pairs."""

    present: set[Sign]
    run_ends: list[int]
    pair_ends: list[int]


BREAK = "\x00"
STAND_IN = "\x01"
"""What a zero character of the caller's becomes: a control character, removed by the fold like any other."""


def decoded(texts: Sequence[str], data: bytes, signs: Signs, seen: set[bytes]) -> Iterator[tuple[int, list[str]]]:
    """What the encodings in a reading decode to, one encoding at a time: the characters it took, and its texts.

    `data` is the UTF-8 of `texts` with breaks between them; `seen` holds the runs already read. Nothing is decoded
    before it is asked for, and what one encoding decodes to is at most as long as it is, or 64 KB.
    """
    if Sign.ESCAPE in signs.present or Sign.QUOTED_PRINTABLE in signs.present:
        for piece in texts:
            for read in _IN_PLACE:
                yield len(piece), [text for text in read(piece) if text != piece]
    for start, stop in runs(data, signs.run_ends):
        yield stop - start, _read_new(data[start:stop], seen)
    for row in pairs(data, signs.pair_ends):
        yield len(row), _read_new(row, seen)


def _read_new(run: bytes, seen: set[bytes]) -> list[str]:
    if run in seen:
        return []
    seen.add(run)
    return read_run(run)


_QUOTED_PRINTABLE = re.compile(r"=(?:[2-7C-F][0-9A-F]|\r?\n)")
_HIGH_BYTE = re.compile(r"\\(?:x[89a-fA-F]|[23][0-7]{2})")


def _unescaped(piece: str) -> list[str]:
    if "\\" not in piece and "%" not in piece and "&" not in piece:
        return []
    text = unescape(piece)
    return [text, byte_escapes_as_utf8(text)] if _HIGH_BYTE.search(piece) else [text]


def _unquoted(piece: str) -> list[str]:
    return [unquote_printable(piece)] if _QUOTED_PRINTABLE.search(piece) else []


_IN_PLACE = (_unescaped, _unquoted)
