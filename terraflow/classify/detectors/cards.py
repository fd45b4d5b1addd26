"""Payment cards: 13 to 19 digits that pass Luhn, with an issuer's prefix and length, written as cards are
written.

1. Digits stand together, or in groups with one separator between them. Groups of four (the last may
   differ), and the 4-6-5 and 4-6-4 of Amex and Diners, count anywhere. Groups of one to three digits count
   only when the whole run is the card.
2. In a row of many four-digit groups (a table of numbers), after a word such as "order" or "ISBN", or at a
   length that few issuers use, a number needs a word such as "card" near it.

Prefixes and lengths: ISO/IEC 7812 issuers as listed publicly by the networks.
"""

from __future__ import annotations

from terraflow.classify.checksums import luhn
from terraflow.classify.detectors.row import Detector
from terraflow.classify.passage import DIGITS, Span, apart, in_context, otherwise, run_start, run_stop
from terraflow.core.types import SensitiveType

SEPARATORS = b" ._/-\t\n"
_TO_SPACE = bytes(0x20 if c in SEPARATORS else c for c in range(256))
_REACH = 60
_POINT = ord(".")

# issuer, first and last prefix of the range, lengths, lengths that need a word of context
ISSUERS = (
    ("visa", "4", "4", (16, 19), (13,)),
    ("mastercard", "51", "55", (16,), ()),
    ("mastercard", "2221", "2720", (16,), ()),
    ("amex", "34", "34", (15,), ()),
    ("amex", "37", "37", (15,), ()),
    ("discover", "6011", "6011", (16, 19), (17, 18)),
    ("discover", "644", "659", (16, 19), (17, 18)),
    ("rupay", "60", "60", (16,), ()),
    ("rupay", "81", "82", (16,), ()),
    ("rupay", "508", "508", (16,), ()),
    ("rupay", "353", "353", (16,), ()),
    ("rupay", "356", "356", (16,), ()),
    ("jcb", "3528", "3589", (16, 19), (17, 18)),
    ("diners", "300", "305", (14, 16), (17, 18, 19)),
    ("diners", "3095", "3095", (14, 16), (17, 18, 19)),
    ("diners", "36", "36", (14, 16), (15, 17, 18, 19)),
    ("diners", "38", "39", (14, 16), (17, 18, 19)),
    ("unionpay", "62", "62", (16, 17, 18, 19), ()),
    ("maestro", "50", "50", (16,), (13, 14, 15, 17, 18, 19)),
    ("maestro", "56", "58", (16,), (13, 14, 15, 17, 18, 19)),
    ("maestro", "6304", "6304", (16,), (13, 14, 15, 17, 18, 19)),
    ("maestro", "6759", "6763", (16,), (13, 14, 15, 17, 18, 19)),
    ("mir", "2200", "2204", (16, 19), (17, 18)),
    ("troy", "9792", "9792", (16,), ()),
)

CARD_WORDS = frozenset(
    b"card cards visa mastercard amex american express discover diners jcb maestro rupay unionpay mir troy"
    b" cvv cvc cvv2 csc exp expiry expires expiration credit debit pan cardholder payment cc ccn".split()
)
OTHER_WORDS = frozenset(
    b"order orders isbn ean upc gtin sku imei tracking track parcel shipment invoice ticket serial barcode"
    b" reference ref confirmation transaction txn batch build".split()
)


def _lengths() -> tuple[frozenset[tuple[bytes, int]], frozenset[tuple[bytes, int]]]:
    """Every (four-digit prefix, length) that an issuer uses, and those that need context."""
    plain: set[tuple[bytes, int]] = set()
    unusual: set[tuple[bytes, int]] = set()
    for _, low, high, usual, rare in ISSUERS:
        for prefix in range(int(low.ljust(4, "0")), int(high.ljust(4, "9")) + 1):
            plain.update((b"%04d" % prefix, length) for length in usual)
            unusual.update((b"%04d" % prefix, length) for length in rare)
    return frozenset(plain), frozenset(unusual - plain)


_USUAL, _UNUSUAL = _lengths()
_AMEX_OR_DINERS = frozenset({(4, 6, 5), (4, 6, 4)})


def _counts(data: bytes, start: int, stop: int, digits: bytes, crowded: bool) -> bool:
    """Whether the digits are a card's, judged by prefix, length and Luhn first and by the words around last."""
    key = (digits[:4], len(digits))
    unusual = key in _UNUSUAL
    if not (unusual or key in _USUAL) or not luhn(digits) or not digits.strip(digits[:1]):
        return False
    if crowded or unusual or otherwise(data, start, OTHER_WORDS):
        return in_context(data, start, stop, CARD_WORDS)
    return True


def locate_solid(data: bytes, end: int) -> Span | None:
    """A number without separators, whose last digit is two bytes before `end`; no fraction's digits."""
    stop = end - 1
    start = run_start(data, stop, DIGITS, 20)
    if stop - start > 19 or not _counts(data, start, stop, data[start:stop], False):
        return None
    fraction = data[start - 1] == _POINT and data[start - 2] in DIGITS
    return (start, stop) if not fraction and apart(data, start, stop) else None


def locate_grouped(data: bytes, end: int) -> Span | None:
    """A number in groups of four or more digits, whose last digit is two bytes before `end`."""
    stop = end - 1
    row = data[run_start(data, stop, DIGITS + SEPARATORS, 19) : stop]
    digits = row.translate(None, SEPARATORS)
    fours = len(digits) == 16 and row[4::5].strip(SEPARATORS) == b""
    # 4-4-4-4 is by far the most frequent: decided by its check digit before anything else is looked at.
    if len(digits) < 13 or (fours and not luhn(digits)):
        return None
    groups, span = _groups(data, stop)
    taken_digits = b""
    sizes: tuple[int, ...] = ()
    for taken, group in enumerate(reversed(groups), start=1):
        taken_digits, sizes = group + taken_digits, (len(group), *sizes)
        if len(taken_digits) > 19:
            return None
        shaped = all(size % 4 == 0 for size in sizes[:-1]) or sizes in _AMEX_OR_DINERS
        if len(taken_digits) < 13 or not shaped:
            continue
        start = span[-taken]
        crowded = sum(len(other) == 4 for other in groups[:-taken] + _following(data, stop)) > 2
        if _counts(data, start, stop, taken_digits, crowded):
            return start, stop
    return None


def _groups(data: bytes, stop: int) -> tuple[list[bytes], list[int]]:
    """The groups of digits that end at `stop`, and where each starts."""
    low = run_start(data, stop, DIGITS + SEPARATORS, _REACH)
    groups = data[low:stop].translate(_TO_SPACE).split()
    starts, at = [], low
    for group in groups:
        at = data.index(group, at)
        starts.append(at)
        at += len(group)
    return groups, starts


def _following(data: bytes, stop: int) -> list[bytes]:
    """The groups of digits that go on after `stop`."""
    return data[stop : run_stop(data, stop, DIGITS + SEPARATORS, 24)].translate(_TO_SPACE).split()


def locate_scattered(data: bytes, end: int) -> Span | None:
    """A number in groups of one to three digits, all alike but the last, that is the whole row of digits."""
    stop = end - 1
    groups, starts = _groups(data, stop)
    digits = b"".join(groups)
    alike = len({len(group) for group in groups[:-1]}) == 1 and len(groups[-1]) <= len(groups[0]) <= 3
    if not alike or len(digits) > 19 or _following(data, stop):
        return None
    return (starts[0], stop) if _counts(data, starts[0], stop, digits, False) else None


_GAP = rb"[ ._/\t\n\-]"
_GROUPED = rb"[2-689][0-9]{3}(?:" + _GAP + rb"[0-9]{4}){2,3}" + _GAP + rb"[0-9]{1,4}[^0-9]"
_THREE_GROUPS = rb"[2-689][0-9]{3}" + _GAP + rb"[0-9]{6}" + _GAP + rb"[0-9]{4,5}[^0-9]"
_SCATTERED = rb"[^0-9 ._/\t\n\-]" + _GAP + rb"{0,2}[2-689][0-9]{0,2}(?:" + _GAP + rb"[0-9]{1,3}){4,18}[^0-9]"

CARDS = (
    Detector("payment_card", SensitiveType.PCI, (rb"[2-689][0-9]{12,18}[^0-9]",), locate_solid),
    Detector("payment_card", SensitiveType.PCI, (_GROUPED, _THREE_GROUPS), locate_grouped),
    Detector("payment_card", SensitiveType.PCI, (_SCATTERED,), locate_scattered),
)
