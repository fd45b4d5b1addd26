"""Evasions: every transform that normalisation undoes, applied to a value of every checksummed type, and pairs."""

from __future__ import annotations

import base64
import binascii
import gzip
import html
import quopri
import random
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.classify import decode
from terraflow.classify.decode import GZIP_MAX_BYTES, unescape
from terraflow.classify.findings import TooLarge
from terraflow.classify.fold import fold
from terraflow.classify.scan import DECODED_SHARE, Scanner
from tests.classify import values

BOUND = 1_000_000
LOOK_ALIKES = str.maketrans("ABCEHIKMOPTXYaceopxy", "АВСЕНІКМОРТХҮасеорху")


def _digits(zero: int) -> Callable[[str], str]:
    return lambda text: text.translate({ord("0") + n: zero + n for n in range(10)})


def _between(sign: str) -> Callable[[str], str]:
    return lambda text: sign.join(text)


CHARACTERS: dict[str, Callable[[str], str]] = {
    "zero-width space": _between("\u200b"),
    "zero-width joiner": _between("\u200d"),
    "word joiner": _between("\u2060"),
    "soft hyphen": _between("\u00ad"),
    "byte order mark": _between("\ufeff"),
    "right-to-left mark": _between("\u200f"),
    "combining mark": _between("\u0336"),
    "variation selector": _between("\ufe0f"),
    "control character": _between("\x02"),
    "null": _between("\x00"),
    "hangul filler": _between("\u3164"),
    "full width": lambda text: text.translate({c: c + 0xFEE0 for c in range(0x21, 0x7F)}),
    "arabic digits": _digits(0x660),
    "persian digits": _digits(0x6F0),
    "devanagari digits": _digits(0x966),
    "bold mathematical digits": _digits(0x1D7CE),
    "double-struck digits": _digits(0x1D7D8),
    "circled digits": lambda text: text.translate({ord("1") + n: 0x2460 + n for n in range(9)}),
    "superscript digits": lambda text: text.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")),
    "look-alike letters": lambda text: text.translate(LOOK_ALIKES),
    "en dashes": lambda text: text.replace("-", "–").replace(" ", "\u00a0"),
    "non-breaking hyphens": lambda text: text.replace("-", "\u2011").replace(" ", "\u2009"),
    "tag characters": lambda text: "".join(chr(0xE0000 + ord(c)) for c in text),
}
ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "url-safe base64": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "wrapped base64": lambda text: base64.encodebytes((f"{'lorem ipsum ' * 9}{text} dolor").encode()).decode(),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "base64 of big-endian UTF-16": lambda text: base64.b64encode(text.encode("utf-16-be")).decode(),
    "base64 of gzip": lambda text: base64.b64encode(gzip.compress(text.encode())).decode(),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "upper-case hexadecimal": lambda text: text.encode().hex().upper(),
    "hexadecimal with 0x": lambda text: "0x" + text.encode().hex(),
    "spaced hexadecimal": lambda text: text.encode().hex(" "),
    "hexadecimal of gzip": lambda text: gzip.compress(text.encode()).hex(),
    "percent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent where needed": lambda text: quote(text, safe="") + "%20",
    "quoted-printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "quoted-printable line break": lambda text: text[:5] + "=\n" + text[5:],
    "HTML decimal": lambda text: "".join(f"&#{ord(c)};" for c in text),
    "HTML hexadecimal": lambda text: "".join(f"&#x{ord(c):x};" for c in text),
    "\\u": lambda text: "".join(f"\\u{ord(c):04x}" if ord(c) < 65536 else c for c in text),
    "\\x": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "\\u{}": lambda text: "".join(f"\\u{{{ord(c):x}}}" for c in text),
    "octal": lambda text: "".join(f"\\{byte:03o}" if byte < 256 else "" for byte in text.encode()),
}
SAMPLES = {
    "payment_card": ("4111111111111111", "5500 0055 5555 5559", "3782-822463-10005"),
    "iban": ("DE89370400440532013000", "GB82 WEST 1234 5698 7654 32"),
    "aadhaar": (values.grouped("234567890124"),),
    "us_ssn": ("123-45-6789",),
}
CASES = [(name, value) for name, some in SAMPLES.items() for value in some]


def found(scanner: Scanner, name: str, text: str) -> bool:
    return name in scanner.scan([[], [text]], bytes_max=BOUND).counts


def test_the_samples_are_found_as_they_stand(scanner: Scanner) -> None:
    assert values.verhoeff_state("234567890124") == 0
    assert all(found(scanner, name, value) for name, value in CASES)


@pytest.mark.parametrize("transform", [*CHARACTERS, *ENCODINGS])
@pytest.mark.parametrize(("name", "value"), CASES, ids=[value for _, value in CASES])
def test_every_single_transform_is_undone(scanner: Scanner, transform: str, name: str, value: str) -> None:
    changed = (CHARACTERS | ENCODINGS)[transform](value)
    assert found(scanner, name, changed)
    assert found(scanner, name, f"please read: {changed} \nand answer")


def test_pairs_of_transforms_are_undone(scanner: Scanner) -> None:
    """An encoding of a changed text, and an encoding of an encoding; at least 95 in 100 of all pairs."""
    both = CHARACTERS | ENCODINGS
    outcomes = {
        (inner, outer, value): found(scanner, name, ENCODINGS[outer](both[inner](value)))
        for inner in both
        for outer in ENCODINGS
        for name, value in CASES
    }
    missed = sorted(case for case, seen in outcomes.items() if not seen)
    assert len(missed) <= len(outcomes) // 20, missed


@given(st.lists(st.sampled_from(["base64", "hexadecimal", "percent", "base32", "\\u"]), min_size=1, max_size=4))
def test_encodings_are_undone_to_a_depth_of_four(layers: list[str]) -> None:
    text = "4111111111111111"
    for layer in layers:
        text = ENCODINGS[layer](text)
    assert found(_SCANNER, "payment_card", text)


_SCANNER = Scanner()


def test_the_fifth_layer_is_not_looked_into(scanner: Scanner) -> None:
    text = "4111111111111111"
    for _ in range(5):
        text = ENCODINGS["base64"](text)
    assert not found(scanner, "payment_card", text)


def test_a_bomb_is_refused_and_a_broken_archive_is_text(scanner: Scanner) -> None:
    bomb = ENCODINGS["base64"]
    packed = base64.b64encode(gzip.compress(b"a" * (GZIP_MAX_BYTES + 1))).decode()
    with pytest.raises(TooLarge):
        found(scanner, "payment_card", packed)
    full = base64.b64encode(gzip.compress(b"a" * (GZIP_MAX_BYTES - 20) + b" 4111111111111111")).decode()
    assert found(scanner, "payment_card", full)
    assert not found(scanner, "payment_card", bomb("\x1f\x8b\x08 not an archive"))


def test_many_archives_are_bounded_together(scanner: Scanner) -> None:
    draw = random.Random(3)
    packed = [gzip.compress(draw.randbytes(8) + b"a" * (GZIP_MAX_BYTES - 64)) for _ in range(40)]
    with pytest.raises(TooLarge):
        scanner.scan([[], [" ".join(base64.b64encode(p).decode() for p in packed)]], bytes_max=20_000)


def test_no_more_is_decoded_than_may_be_read(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven thousand runs of a hundred bytes, each of 64 KB inflated: what is kept stops at the budget."""
    draw, inflated = random.Random(5), []
    inflate = decode._inflate
    monkeypatch.setattr(decode, "_inflate", lambda raw: inflated.append(raw) or inflate(raw))
    packed = (gzip.compress(draw.randbytes(8) + b"a" * (GZIP_MAX_BYTES - 8)) for _ in range(7_000))
    text = " ".join(base64.b64encode(each).decode() for each in packed)
    with pytest.raises(TooLarge):
        scanner.scan([[], [text]], bytes_max=1 << 20)
    assert len(inflated) <= DECODED_SHARE * (1 << 20) // GZIP_MAX_BYTES + 1


@given(st.text())
def test_fold_changes_no_ascii_and_is_its_own_fixed_point(text: str) -> None:
    once = fold(text)
    assert fold(once) == once
    plain = "".join(c for c in text if " " <= c <= "~")
    assert fold(plain) == plain


@given(st.text())
def test_unescape_reads_what_the_encoders_wrote(text: str) -> None:
    plain = text.replace("\\", "/").replace("%", "+").replace("&", "+").replace("\r", "\n")
    assert unescape("".join(f"\\u{{{ord(c):x}}}" for c in plain if c != "\x00")) == plain.replace("\x00", "")
    assert unescape(quote(plain)) == plain
    assert html.unescape(html.escape(plain)) == unescape(html.escape(plain))


@pytest.mark.parametrize("text", ["\\", "\\u", "\\u12", "\\x4", "100 % sure", "&;", "&#;", "\\U99999999", "%zz"])
def test_broken_escapes_raise_nothing(scanner: Scanner, text: str) -> None:
    assert scanner.scan([[], [text + " 4111111111111111"]], bytes_max=BOUND).counts == {"payment_card": 1}


def test_quoted_printable_and_base64_agree_with_the_standard_library(scanner: Scanner) -> None:
    text = "número 4111 1111 1111 1111 é"
    assert found(scanner, "payment_card", quopri.encodestring(text.encode(), quotetabs=True).decode())
    assert found(scanner, "payment_card", binascii.b2a_base64(text.encode()).decode())
