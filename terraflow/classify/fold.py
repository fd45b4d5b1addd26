"""Characters folded to the ASCII that they stand for to a reader.

1. Removed: format characters (zero-width, bidirectional, soft hyphen), control characters other than tab and
   line ends, marks that combine with the character before, variation selectors, blank fillers.
2. Tag characters (U+E0020–E007E) become the ASCII that they spell.
3. Digits of every script, circled and superscript ones among them, become 0–9; dashes become `-`, spaces a
   space, quotation marks `'`; compatibility forms (full width, mathematical letters, ligatures) become their
   plain form (NFKC); letters of other scripts that look like Latin ones become those.
4. Everything else stays. The break between texts (U+0000) always stays.

The look-alikes are the letters of Greek, Cyrillic, Armenian, Cherokee and the phonetic alphabet whose usual
shape is that of a Latin letter; Unicode Technical Standard 39 describes the attack.
"""

from __future__ import annotations

import unicodedata

_LOOK_ALIKES = (
    ("АВЕЅІЈКМНОРСТУХԚԜҮҺЗ", "ABESIJKMHOPCTYXQWYh3"),
    ("аеѕіјорсухһԛԝԁӏүвнкмтгпи", "aesijopcyxhqwdlybhkmtrnu"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϳ", "ABEZHIKMNOPTYXCj"),
    ("αεικνορτυχϲγηω", "aeikvoptuxcynw"),
    ("ՏՍՕԼհոսօցյԶ", "SUOLhnuogj2"),
    ("ᎪᏴᏟᎠᎬᎻᎫᏦᏞᎷᏀᏢᏒᏚᎢᏙᎳᏃ", "ABCDEHJKLMGPRSTVWZ"),
    ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢ", "ABCDEFGHIJKLMNOPQRSTUVWYZ"),
    ("ɑɡıȷℓƖǀØøŁłĐđƠơ", "agijlllOoLlDdOo"),
    ("‐‑‒–—―−﹘﹣－⁃˗➖ー", "--------------"),
    ("‘’‚‛“”„‟′″«»‹›`", "'''''''''''''''"),
    ("․。．｡·•∙⋅・", "........."),
    ("∕⁄⧸／", "////"),
    ("：∶꞉ː", "::::"),
    ("＠﹫", "@@"),
    ("＿﹍﹎﹏", "____"),
)
_TABLE = {ord(a): b for look, plain in _LOOK_ALIKES for a, b in zip(look, plain, strict=True) if ord(a) > 0x7F}
_BLANKS = frozenset((0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0, 0x180E, 0x034F, 0xFFFD))
_KEPT_CONTROLS = frozenset((0x00, 0x09, 0x0A, 0x0D))
_REMOVED = frozenset(("Cf", "Cc", "Mn", "Me", "Cs"))
# Blocks whose characters stand for themselves: CJK, Hangul syllables, private use, the supplementary ideographs.
_PLAIN = ((0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x20000, 0x3FFFF))
_LETTER_RANGES = ((0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189), (0x1F1E6, 0x1F1FF))


def _folded(point: int) -> str | int:
    """What one code point becomes: itself, other text, or nothing (the empty string)."""
    if 0x20 <= point < 0x7F or point in _KEPT_CONTROLS or any(a <= point <= b for a, b in _PLAIN):
        return point
    if 0xE0020 <= point <= 0xE007E:
        return chr(point - 0xE0000)
    for low, high in _LETTER_RANGES:
        if low <= point <= high:
            return chr(ord("A") + point - low)
    known = _TABLE.get(point)
    if known is not None:
        return known
    sign = chr(point)
    category = unicodedata.category(sign)
    if category in _REMOVED or point in _BLANKS:
        return ""
    digit = unicodedata.digit(sign, None)
    if digit is not None:
        return str(digit)
    if category == "Zs":
        return " "
    if category in ("Zl", "Zp"):
        return "\n"
    if category == "Pd":
        return "-"
    return _decomposed(sign)


def _decomposed(sign: str) -> str:
    """NFKC of one character without its marks, its parts folded by the table; else the character itself."""
    parts = unicodedata.normalize("NFKD", sign)
    if parts == sign:
        return sign
    kept = "".join(_TABLE.get(ord(part), part) for part in parts if unicodedata.category(part) not in _REMOVED)
    return kept.replace("\x00", "") or sign


class _Fold(dict[int, str | int]):
    """`str.translate`'s table, filled as characters are met; at most one entry a code point."""

    def __missing__(self, point: int) -> str | int:
        folded = self[point] = _folded(point)
        return folded


_FOLD = _Fold()


def fold(text: str) -> str:
    """`text` with every character folded; equal to `text` when there is nothing to fold."""
    return text.translate(_FOLD)
