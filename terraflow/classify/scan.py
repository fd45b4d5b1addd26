"""The classification scan: what kinds of sensitive content are in a request's strings.

1. Read are: each string as itself, and the joined text of each group and of all messages in order, once with
   nothing between the strings and once with a space; each of these in all its readings (`normalise`).
2. The readings are laid end to end with a break between them and matched in one pass. No look of a validator
   crosses a break, so what is found is what reading them one by one would find.
3. The cost is linear in what is read, and what is read is bounded: more than `bytes_max` of strings, or more
   than sixteen times that after decoding, raises TooLarge. Nothing is cut. A decoded text is counted before it is
   kept.
4. Any fault raises; the caller fails closed. No text leaves: `Findings` holds types and numbers.
5. A long text is read in steps of some milliseconds, so that whoever has other things to do can do them in between.
   Scans may take turns in one thread; another thread needs a Scanner of its own (hyperscan's scratch space).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import hyperscan

from terraflow.classify.detectors import DETECTORS, Detector
from terraflow.classify.findings import Findings, TooLarge
from terraflow.classify.fold import fold
from terraflow.classify.normalise import BREAK, DEPTH_MAX, SIGNS, STAND_IN, Sign, Signs, decoded
from terraflow.classify.passage import Span

STEP_BYTES = 32 * 1024
"""The longest step: ten milliseconds of texts made to be slow, a quarter of one of others."""
_RUN_BYTES = 128
"""What a decoding or a fold costs beside its length, in bytes of the same cost."""
STEP_TEXTS = 1_000
DECODED_SHARE = 16
DECODED_LEAST_BYTES = 256 * 1024
_SEPARATORS = b" ._/-\t\n()"

Groups = Sequence[Sequence[str]]

Steps = Iterator[Findings | None]
"""A scan that goes one step further each time it is asked; the last step gives what was found, the others nothing."""


def joined(groups: Groups) -> list[str]:
    """The texts to read, each once. Group 0 is what stands outside messages; it is joined only with itself."""
    texts = [string for group in groups for string in group]
    for group in groups:
        if len(group) > 1:
            texts += ("".join(group), " ".join(group))
    messages = [string for group in groups[1:] for string in group]
    if len(groups) > 2:
        texts += ("".join(messages), " ".join(messages))
    return [text for text in dict.fromkeys(texts) if text]


class Scanner:
    """The detectors' anchors, compiled; built once, used for every request."""

    def __init__(self, detectors: Sequence[Detector] = DETECTORS) -> None:
        self._rows: list[Detector] = [row for row in detectors for _ in row.anchors]
        self._first_sign = len(self._rows)
        expressions = [anchor for row in detectors for anchor in row.anchors]
        flags = [hyperscan.HS_FLAG_DOTALL | (hyperscan.HS_FLAG_CASELESS if row.caseless else 0) for row in self._rows]
        expressions += [sign.anchor for sign in SIGNS]
        flags += [hyperscan.HS_FLAG_DOTALL | (0 if sign.every else hyperscan.HS_FLAG_SINGLEMATCH) for sign in SIGNS]
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_STREAM)
        self._database.compile(expressions=expressions, ids=list(range(len(expressions))), flags=flags)
        self._locators: list[Callable[[bytes, int], Span | None]] = [row.locate for row in self._rows]

    def scan(self, groups: Groups, *, bytes_max: int) -> Findings:
        """All `steps` at once."""
        return next(found for found in self.steps(groups, bytes_max=bytes_max) if found is not None)

    def steps(self, groups: Groups, *, bytes_max: int) -> Steps:
        """The findings in `groups`: group 0 is the strings outside messages, each other one those of a message.

        Raises TooLarge when the strings' UTF-8 is longer than `bytes_max`, or what they decode to is too long.
        """
        size = sum(_utf8_bytes(string) for group in groups for string in group)
        if size > bytes_max:
            raise TooLarge(bytes_max)
        if any(BREAK in string for group in groups for string in group):
            groups = [[string.replace(BREAK, STAND_IN) for string in group] for group in groups]
        reading = _Reading(self._rows, max(DECODED_LEAST_BYTES, DECODED_SHARE * bytes_max))
        texts = reading.unread(joined(groups))
        for text in texts:
            reading.charge(text)
        if len(texts) > STEP_TEXTS:
            yield None
        for _ in range(DEPTH_MAX + 1):
            if not texts:
                break
            texts = reading.unread((yield from self._read(texts, reading)))
        yield reading.findings(size)

    def _read(self, texts: list[str], reading: _Reading) -> Generator[None, None, list[str]]:
        """Match the texts of one depth and the folds of those that have one; the texts of the next depth."""
        below: dict[str, None] = {}
        controls = Sign.CONTROL in (yield from self._match(texts, reading, below)).present
        unfolded = [text for text in texts if controls or not text.isascii()]
        folds = (yield from _folds(unfolded, reading)) if unfolded else []
        if folds:
            yield from self._match(folds, reading, below)
        return list(below)

    def _match(self, texts: list[str], reading: _Reading, below: dict[str, None]) -> Generator[None, None, Signs]:
        """Match the texts in one pass. What their encodings decode to is added to `below`; the signs are returned."""
        data = BREAK.join(("", *texts, "")).encode("utf-8", "replace")
        present: set[Sign] = set()
        signs = Signs(present, [], [])
        matches: list[tuple[int, int]] = []
        with self._database.stream(match_event_handler=_collect, context=matches) as stream:
            for start in range(0, len(data), STEP_BYTES):
                if start:
                    yield
                stream.scan(data[start : start + STEP_BYTES])
                self._judge(data, matches, reading, signs)
                matches.clear()
        taken = 0
        for size, found in decoded(texts, data, signs, reading.runs) if present else ():
            for text in found:
                reading.keep(text.replace(BREAK, STAND_IN), below)
            taken += size + _RUN_BYTES
            if taken > STEP_BYTES:
                taken = 0
                yield
        return signs

    def _judge(self, data: bytes, matches: list[tuple[int, int]], reading: _Reading, signs: Signs) -> None:
        """Hand each match to its detector, or note the sign that it is."""
        reading.candidates += len(matches)
        locators, first_sign = self._locators, self._first_sign
        for row, end in matches:
            if row < first_sign:
                span = locators[row](data, end)
                if span is not None:
                    reading.found(row, data[span[0] : span[1]])
                continue
            sign = SIGNS[row - first_sign].sign
            signs.present.add(sign)
            if sign is Sign.RUN:
                signs.run_ends.append(end - 1)
            elif sign is Sign.PAIRS:
                signs.pair_ends.append(end - 1)


def _folds(texts: list[str], reading: _Reading) -> Generator[None, None, list[str]]:
    """The folds that are new. Every character is folded by itself, and so a long text piece by piece."""
    folds: list[str] = []
    taken = 0
    for text in texts:
        pieces = []
        for start in range(0, len(text), STEP_BYTES):
            pieces.append(fold(text[start : start + STEP_BYTES]))
            taken += len(pieces[-1]) + _RUN_BYTES
            if taken > STEP_BYTES:
                taken = 0
                yield
        for folded in reading.unread(["".join(pieces)]):
            reading.charge(folded)
            folds.append(folded)
    return folds


def _collect(row: int, _start: int, end: int, _flags: int, matches: object) -> None:
    matches.append((row, end))  # type: ignore[attr-defined]


def _utf8_bytes(string: str) -> int:
    return len(string) if string.isascii() else len(string.encode("utf-8", "replace"))


class _Reading:
    """What one scan has found so far; dropped with the values it compared as soon as the scan ends."""

    def __init__(self, rows: list[Detector], visited_max: int) -> None:
        self._rows = rows
        self._visited_max = visited_max
        self._visited = 0
        self.candidates = 0
        self._values: dict[int, set[bytes]] = {}
        self._texts: set[str] = set()
        self.runs: set[bytes] = set()

    def charge(self, text: str) -> None:
        """Count a text that is going to be read."""
        self._visited += _utf8_bytes(text) + 1
        if self._visited > self._visited_max:
            raise TooLarge(self._visited_max)

    def keep(self, text: str, below: dict[str, None]) -> None:
        """Keep a decoded text for the next depth, if it is new."""
        if text and text not in self._texts and text not in below:
            self.charge(text)
            below[text] = None

    def unread(self, texts: list[str]) -> list[str]:
        """Those of `texts` that have not come up before."""
        new = [text for text in dict.fromkeys(texts) if text not in self._texts]
        self._texts.update(new)
        return new

    def found(self, row: int, value: bytes) -> None:
        self._values.setdefault(row, set()).add(value.translate(None, _SEPARATORS))

    def findings(self, size: int) -> Findings:
        values: dict[str, set[bytes]] = {}
        for row, found in self._values.items():
            values.setdefault(self._rows[row].name, set()).update(found)
        types = frozenset(self._rows[row].type for row in self._values)
        counts = {name: len(found) for name, found in values.items()}
        return Findings(types, counts, size, self._visited, self.candidates)
