"""The fast scan against the obvious one; values split over parts and messages; bounds; faults; work counted."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.classify import scan as scan_module
from terraflow.classify.detectors import DETECTORS
from terraflow.classify.detectors.row import Detector
from terraflow.classify.findings import TooLarge
from terraflow.classify.fold import fold
from terraflow.classify.normalise import DEPTH_MAX, SIGNS, Sign, Signs, decoded
from terraflow.classify.scan import Scanner, joined
from terraflow.core.types import SensitiveType
from tests.classify import values

BOUND = 1_000_000
SCANNER = Scanner()
Groups = Sequence[Sequence[str]]


def ends(anchor: bytes, data: bytes, flags: int) -> list[int]:
    """Every offset at which a match of `anchor` ends, by asking Python's `re` at each offset in turn."""
    at_end = re.compile(rb"(?:" + anchor + rb")\Z", re.DOTALL | flags)
    return [end for end in range(1, len(data) + 1) if at_end.search(data, max(0, end - 120), end)]


def obvious_readings(text: str) -> list[str]:
    """All readings of one text, each by itself, nothing shared and nothing left out."""
    depth, readings = [text.replace("\x00", "\x01")], []
    for _ in range(DEPTH_MAX + 1):
        level = [f"\x00{reading}\x00" for reading in depth]
        level += [fold(reading) for reading in level if fold(reading) != reading]
        readings += level
        depth = []
        for reading in level:
            data = reading.encode()
            present = {row.sign for row in SIGNS if re.search(row.anchor, data, re.DOTALL)}
            run_ends = [e - 1 for row in SIGNS if row.sign is Sign.RUN for e in ends(row.anchor, data, 0)]
            pair_ends = [e - 1 for row in SIGNS if row.sign is Sign.PAIRS for e in ends(row.anchor, data, 0)]
            signs = Signs(present, run_ends, sorted(pair_ends))
            for _, found in decoded([reading.strip("\x00")], data, signs, set()):
                depth += [text.replace("\x00", "\x01") for text in found]
    return list(dict.fromkeys(readings))


def obvious_types(groups: Groups) -> set[str]:
    """What domain.md asks for, one text after the other: strings, joined groups, all messages joined."""
    texts = [string for group in groups for string in group]
    texts += [joint.join(group) for group in groups for joint in ("", " ")]
    texts += [joint.join(s for group in groups[1:] for s in group) for joint in ("", " ")]
    found: set[str] = set()
    for reading in dict.fromkeys(r for text in texts if text for r in obvious_readings(text)):
        data = reading.encode("utf-8", "replace")
        for row in DETECTORS:
            flags = re.IGNORECASE if row.caseless else 0
            for anchor in row.anchors:
                if any(row.locate(data, end) for end in ends(anchor, data, flags)):
                    found.add(row.name)
    return found


PIECES = st.one_of(
    st.sampled_from(
        ["card ", "order ", "ISBN ", "call ", " ", ".", "\n", "x", "7", "&#52;", "%34", "\\u0034", "\u200b"]
    ),
    values.cards(),
    values.cards().map(values.grouped),
    values.ibans(),
    values.ssns(),
    values.aadhaars().map(values.grouped),
    st.just("bob@example.com"),
    st.just("NDExMTExMTExMTExMTExMQ=="),
    st.text("0123456789 -", max_size=12),
)
STRINGS = st.lists(PIECES, max_size=3).map("".join)


@st.composite
def cut_groups(draw: st.DrawFn) -> list[list[str]]:
    """A short text cut at arbitrary places into strings, and the strings into groups."""
    text = draw(STRINGS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    groups: list[list[str]] = [[]]
    for part in parts:
        if draw(st.booleans()):
            groups.append([])
        groups[-1].append(part)
    return groups


@given(cut_groups())
@settings(max_examples=40, deadline=None)
def test_the_fast_scan_finds_what_the_obvious_scan_finds(groups: list[list[str]]) -> None:
    findings = SCANNER.scan(groups, bytes_max=BOUND)
    assert set(findings.counts) == obvious_types(groups)
    assert findings.types == {row.type for row in DETECTORS if row.name in findings.counts}


@given(st.sampled_from(sorted(values.VALUES)), st.data(), st.booleans())
def test_a_value_split_anywhere_is_found(name: str, data: st.DataObject, over_messages: bool) -> None:
    value = data.draw(values.VALUES[name])
    cut = data.draw(st.integers(1, len(value) - 1))
    before, after = f"It is {value[:cut]}", f"{value[cut:]} as I said"
    groups = [["model"], [before], [after]] if over_messages else [["model"], ["Hello."], [before, after]]
    assert name in SCANNER.scan(groups, bytes_max=BOUND).counts


def test_groups_written_in_parts_are_found_with_a_space_between() -> None:
    assert SCANNER.scan([[], ["4111 1111", "1111 1111"]], bytes_max=BOUND).types == {SensitiveType.PCI}
    assert SCANNER.scan([[], ["4111 1111"], ["1111 1111"]], bytes_max=BOUND).types == {SensitiveType.PCI}


def test_a_string_outside_messages_is_no_part_of_the_messages() -> None:
    assert SCANNER.scan([["4111111111"], ["111111"]], bytes_max=BOUND).types == frozenset()


def test_a_planted_fault_in_the_joining_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The differential test bites: without the joined texts the two scans differ."""
    groups = [[], ["4111 1111", "1111 1111"]]
    assert "payment_card" in obvious_types(groups)
    monkeypatch.setattr(scan_module, "joined", lambda groups: [s for g in groups for s in g])
    assert SCANNER.scan(groups, bytes_max=BOUND).types == frozenset()


def test_joined_leaves_out_what_is_the_same() -> None:
    assert joined([[], ["one"]]) == ["one"]
    assert joined([[], ["one"], ["two"]]) == ["one", "two", "onetwo", "one two"]
    assert joined([["m"], ["a", "b"]]) == ["m", "a", "b", "ab", "a b"]
    assert joined([[], [""], []]) == []


def test_a_value_beside_a_break_of_the_callers_own_is_found() -> None:
    assert SCANNER.scan([[], ["4111\x0011111111\x001111"]], bytes_max=BOUND).counts == {"payment_card": 1}
    assert "payment_card" in SCANNER.scan([[], ["4111111111111111\x005"]], bytes_max=BOUND).counts


def test_the_bound_is_in_bytes_and_exact() -> None:
    assert SCANNER.scan([["ä"], ["b"]], bytes_max=3).bytes_scanned == 3
    with pytest.raises(TooLarge) as refused:
        SCANNER.scan([["ä"], ["4111111111111111"]], bytes_max=17)
    assert "4111" not in str(refused.value)


def test_a_fault_in_a_detector_is_not_swallowed() -> None:
    def broken(data: bytes, end: int) -> None:
        raise ZeroDivisionError

    row = Detector("broken", SensitiveType.PII, (rb"[0-9]",), broken)
    with pytest.raises(ZeroDivisionError):
        Scanner([row]).scan([["a 1"]], bytes_max=BOUND)


def test_findings_hold_no_text() -> None:
    findings = SCANNER.scan([[], ["4111111111111111 bob@example.com"]], bytes_max=BOUND)
    assert "4111" not in repr(findings) and "bob" not in repr(findings)
    assert findings.counts == {"payment_card": 1, "email": 1}


def test_counts_are_of_different_values() -> None:
    text = "4111111111111111 4111 1111 1111 1111 5500005555555559"
    assert SCANNER.scan([[], [text]], bytes_max=BOUND).counts == {"payment_card": 2}


HOSTILE = [
    "4",
    "4 ",
    "41 ",
    "4111 ",
    "a@",
    "a@b.c1 ",
    "+1",
    "eyJ",
    "ghp_",
    "xoxb-",
    "%41",
    "&#52;",
    "\\u0034",
    "A" * 15 + " ",
]


@pytest.mark.parametrize(
    "unit", [*HOSTILE, "DE89", "-----BEGIN ", "://a:", "service_account", "34 ", "=41", "\u200b4", "password="]
)
def test_the_work_grows_with_the_text_and_no_faster(unit: str) -> None:
    """Bytes visited and candidates, not time: four times the text is at most 4.2 times the work."""
    short = SCANNER.scan([[], [unit * (8_000 // len(unit))]], bytes_max=BOUND)
    long = SCANNER.scan([[], [unit * (32_000 // len(unit))]], bytes_max=BOUND)
    assert long.bytes_visited <= 4.2 * short.bytes_visited
    assert long.candidates <= 4.2 * short.candidates + 50


def test_plain_text_is_read_once() -> None:
    text = "An ordinary sentence of no interest to anyone. " * 20
    findings = SCANNER.scan([[], [text]], bytes_max=BOUND)
    assert (findings.bytes_visited, findings.candidates) == (len(text) + 1, 0)


BUSY = {
    "cards that fail": "4111111111111112 ",
    "cards": "4111111111111111 ",
    "scripts": "\u200b4\u200b1",
    "encodings": "NDExMTExMTExMTExMTExMQ== ",
    "escapes": "\\u0034%31&#49;",
}


@pytest.mark.parametrize("unit", BUSY.values(), ids=BUSY)
def test_a_long_text_is_read_in_steps_that_end_at_nothing(unit: str) -> None:
    """What is found is the same as at once, and other scans may stand between."""
    text = unit * (200_000 // len(unit)) + "x" * scan_module.STEP_BYTES + " card 5500005555555559"
    groups = [[], [text[:100_007], text[100_007:]]]
    at_once = SCANNER.scan(groups, bytes_max=BOUND)
    found = []
    for step in SCANNER.steps(groups, bytes_max=BOUND):
        assert SCANNER.scan([["bob@example.com"]], bytes_max=BOUND).counts == {"email": 1}
        found.append(step)
    assert found[-1] == at_once and "payment_card" in at_once.counts
    assert not any(found[:-1])
    assert len(found) > at_once.bytes_visited // scan_module.STEP_BYTES


@given(st.integers(0, 40), st.sampled_from(["4111111111111111", "DE89370400440532013000", "NDExMTExMTExMTExMTExMQ=="]))
def test_a_value_across_two_steps_is_found(before: int, value: str) -> None:
    filler = "an ordinary word " * (scan_module.STEP_BYTES // 17 + 1)
    text = filler[: scan_module.STEP_BYTES - 2 - before] + " " + value + " and more"
    assert set(SCANNER.scan([[], [text]], bytes_max=BOUND).counts) & {"payment_card", "iban"}


def test_a_short_text_is_one_step() -> None:
    groups = [["model"], ["Hello, here is bob@example.com and 4111111111111111"]]
    assert list(SCANNER.steps(groups, bytes_max=BOUND)) == [SCANNER.scan(groups, bytes_max=BOUND)]
