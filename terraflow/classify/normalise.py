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

    present: frozenset[Sign]
    run_ends: list[int]
    pair_ends: list[int]


BREAK = "\x00"
STAND_IN = "\x01"
"""What a zero character of the caller's becomes: a control character, removed by the fold like any other."""


def decoded(text: str, data: bytes, signs: Signs, seen: set[bytes]) -> list[str]:
    """What the encodings in one reading decode to. `data` is its UTF-8; `seen` holds the runs already read."""
    texts: list[str] = []
    if Sign.ESCAPE in signs.present or Sign.QUOTED_PRINTABLE in signs.present:
        for piece in text.split(BREAK):
            texts += _in_place(piece)
    found = [data[start:stop] for start, stop in runs(data, signs.run_ends)] if signs.run_ends else []
    if signs.pair_ends:
        found += pairs(data, signs.pair_ends)
    for run in found:
        if run not in seen:
            seen.add(run)
            texts += read_run(run)
    return [text.replace(BREAK, STAND_IN) for text in texts]


_QUOTED_PRINTABLE = re.compile(r"=(?:[2-7C-F][0-9A-F]|\r?\n)")
_HIGH_BYTE = re.compile(r"\\(?:x[89a-fA-F]|[23][0-7]{2})")


def _in_place(piece: str) -> list[str]:
    """One text with its escapes read, and read as quoted-printable; nothing where that changes nothing."""
    texts: list[str] = []
    if "\\" in piece or "%" in piece or "&" in piece:
        texts.append(unescape(piece))
        if _HIGH_BYTE.search(piece):
            texts.append(byte_escapes_as_utf8(texts[0]))
    if _QUOTED_PRINTABLE.search(piece):
        texts.append(unquote_printable(piece))
    return [changed for changed in texts if changed != piece]
