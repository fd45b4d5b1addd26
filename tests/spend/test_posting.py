"""At what an attempt is posted, by how it ended and who counted."""

from __future__ import annotations

import pytest

from terraflow.ports.upstream import Usage
from terraflow.spend.posting import POSTED, Basis, End, Posting, posting
from terraflow.spend.pricing import UnknownPrice

RESERVED = 1_000
READ = Usage(input=30, estimated=True)
VENDORS = Usage(input=10, output=5)
OURS = Usage(input=30, output=7, estimated=True)
NOTHING = Posting(0, None, estimated=False, overrun=False)
WORST_CASE = Posting(RESERVED, None, estimated=True, overrun=False)


def price(used: Usage) -> int:
    if used.audio_output:
        raise UnknownPrice("audio has no price")
    return used.input + 2 * used.output


def posted(end: End, usage: Usage | None, reserved: int = RESERVED) -> Posting:
    return posting(end, usage, READ, reserved, price)


@pytest.mark.parametrize("end", list(End))
def test_what_was_counted_is_posted_however_it_ended(end: End) -> None:
    assert POSTED[end][:2] == (Basis.VENDORS, Basis.OURS)
    assert posted(end, VENDORS) == Posting(20, VENDORS, estimated=False, overrun=False)
    assert posted(end, OURS) == Posting(44, OURS, estimated=True, overrun=False)


@pytest.mark.parametrize(
    ("end", "is_posted"),
    [
        (End.ANSWERED, WORST_CASE),
        (End.UNREACHED, NOTHING),
        (End.UNDONE, NOTHING),
        (End.READ, Posting(30, READ, estimated=True, overrun=False)),
        (End.HIDDEN, WORST_CASE),
        (End.BROKEN_OFF, WORST_CASE),
    ],
)
def test_what_nobody_counted(end: End, is_posted: Posting) -> None:
    assert posted(end, None) == is_posted


def test_a_vendors_bill_is_posted_as_it_is_and_our_count_only_within_what_was_reserved() -> None:
    assert posted(End.ANSWERED, VENDORS, reserved=19) == Posting(20, VENDORS, estimated=False, overrun=True)
    assert posted(End.BROKEN_OFF, OURS, reserved=43) == Posting(43, OURS, estimated=True, overrun=False)
    assert posted(End.READ, None, reserved=29) == Posting(29, READ, estimated=True, overrun=False)


def test_tokens_without_a_price_are_posted_at_the_worst_case() -> None:
    spoken = Usage(input=1, audio_output=1)
    assert posted(End.ANSWERED, spoken) == Posting(RESERVED, spoken, estimated=True, overrun=False)
