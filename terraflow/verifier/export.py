"""Is this export what the log's key signed, whole and unchanged? Read `verify_export` from top to bottom."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from terraflow.verifier.formats import (
    STATEMENT_TYPE,
    Checkpoint,
    LogKey,
    RecordName,
    Refused,
    open_checkpoint,
    open_envelope,
    parse_json,
)
from terraflow.verifier.layout import (
    CHECKPOINT,
    HISTORY,
    RECORDS,
    STATEMENT,
    bundle_name,
    names_in,
    names_of,
    tile_name,
)
from terraflow.verifier.records import Checked, Stretch, check_stretch, read_listed
from terraflow.verifier.tree import TILE, WIDTH, levels_above, root_at

PREDICATE_TYPE = "urn:terraflow:evidence-export:v1"
STRETCH_BUNDLES = 16
ALONE_MAX = 16_384
"""Records below which one process is faster than starting more."""

Progress = Callable[[int, int], None]
"""Called with the number of records checked so far, and of all."""


class Report(NamedTuple):
    """What was verified: sizes in records; `open` counts intents without an outcome."""

    origin: str
    size: int
    root: str
    intents: int
    outcomes: int
    feedbacks: int
    open: int
    checkpoints: int
    files: int
    previous_size: int | None


def verify_export(
    directory: Path,
    key: LogKey,
    previous: bytes | None = None,
    processes: int = 1,
    progress: Progress = lambda _done, _all: None,
) -> Report:
    """Verify an export against a log's key and, if given, a checkpoint seen earlier.

    Raises Refused at the first thing that is not as it was signed; OSError when files cannot be read.
    """
    found = names_in(directory)
    if STATEMENT not in found:
        raise Refused(STATEMENT, "is missing")
    digests = _listed(open_envelope((directory / STATEMENT).read_bytes(), key, STATEMENT), key)
    _compare_names(
        found - {STATEMENT}, set(digests), "is not listed in the signed statement", "is listed, but not there"
    )
    checkpoint = open_checkpoint(read_listed(directory, CHECKPOINT, digests), key, CHECKPOINT)
    _compare_names(set(digests), names_of(checkpoint.size), "belongs to no export of this size", "is not listed")
    history = _history(read_listed(directory, HISTORY, digests), key, checkpoint)

    stretches = _stretches(directory, key, checkpoint.size, digests)
    parts, seen = [], _Seen(tenant_of(key))
    for part in _check_all(stretches, processes if checkpoint.size > ALONE_MAX else 1):
        seen.add(part)
        parts.append(part)
        progress(min(len(parts) * STRETCH_BUNDLES * WIDTH, checkpoint.size), checkpoint.size)
    _compare_digest(directory, RECORDS, digests[RECORDS])

    levels = [b"".join(part.hashes for part in parts), *levels_above(b"".join(part.tile_roots for part in parts))]
    _compare_tiles(directory, checkpoint.size, levels, digests)
    for claimed, where in [(checkpoint, CHECKPOINT), *history]:
        if root_at(claimed.size, levels) != claimed.root:
            raise Refused(where, f"states another root than the records give at size {claimed.size}")
    earlier = None if previous is None else _compare_previous(previous, key, checkpoint.size, levels)
    return Report(
        origin=key.name,
        size=checkpoint.size,
        root=checkpoint.root.hex(),
        intents=len(seen.intents),
        outcomes=len(seen.outcomes),
        feedbacks=seen.feedbacks,
        open=len(seen.intents) - len(seen.outcomes),
        checkpoints=len(history),
        files=len(digests) + 1,
        previous_size=earlier,
    )


def _listed(payload: bytes, key: LogKey) -> dict[str, bytes]:
    """The digests that the statement lists by name."""
    match parse_json(payload, STATEMENT):
        case {
            "_type": str(kind),
            "predicateType": str(predicate_type),
            "predicate": {"origin": str(origin), **other},
            "subject": list(subjects),
            **more,
        } if (kind, predicate_type, origin) == (STATEMENT_TYPE, PREDICATE_TYPE, key.name) and not other and not more:
            listed = dict(map(_subject, subjects))
        case _:
            raise Refused(STATEMENT, "is not the statement of an export of this log")
    if len(listed) != len(subjects) or list(listed) != sorted(listed):
        raise Refused(STATEMENT, "lists its files twice or out of order")
    for name in (CHECKPOINT, HISTORY, RECORDS):
        if name not in listed:
            raise Refused(STATEMENT, f"does not list {name}")
    return listed


def _subject(subject: Any) -> tuple[str, bytes]:
    match subject:
        case {"name": str(name), "digest": {"sha256": str(digest), **other}, **more} if not other and not more:
            if re.fullmatch(r"[0-9a-f]{64}", digest) is not None:
                return name, bytes.fromhex(digest)
    raise Refused(STATEMENT, "lists a file without its SHA-256")


def _compare_names(names: set[str], expected: set[str], too_many: str, too_few: str) -> None:
    for wrong, what in [(names - expected, too_many), (expected - names, too_few)]:
        if wrong:
            raise Refused(min(wrong), what)


def _history(raw: bytes, key: LogKey, latest: Checkpoint) -> list[tuple[Checkpoint, str]]:
    """Every published checkpoint, in order of size; the last is the latest."""
    lines = raw.split(b"\n")
    if lines.pop() != b"":
        raise Refused(HISTORY, "is cut short")
    history: list[tuple[Checkpoint, str]] = []
    for number, line in enumerate(lines, 1):
        where = f"{HISTORY}: line {number}"
        match parse_json(line, where):
            case {"checkpoint": str(note), **other} if not other:
                claimed = open_checkpoint(note.encode(), key, where)
            case _:
                raise Refused(where, "is not a checkpoint")
        if history and claimed.size <= history[-1][0].size:
            raise Refused(where, "is not larger than the checkpoint before it")
        history.append((claimed, where))
    if not history or history[-1][0] != latest:
        raise Refused(HISTORY, "does not end in the latest checkpoint")
    return history


def tenant_of(key: LogKey) -> str:
    """The tenant that a log's name gives."""
    return key.name.removeprefix("terraflow.").removesuffix("/evidence")


def _stretches(directory: Path, key: LogKey, size: int, digests: dict[str, bytes]) -> Iterator[Stretch]:
    tenant = tenant_of(key)
    bundles, offset = -(-size // WIDTH), 0
    for first in range(0, bundles, STRETCH_BUNDLES):
        end = min(first + STRETCH_BUNDLES, bundles)
        names = [bundle_name(index, size) for index in range(first, end)]
        tiles = [tile_name(0, index, size) for index in range(first, end)]
        yield Stretch(str(directory), tenant, size, first, end, {name: digests[name] for name in names + tiles}, offset)
        prefixes_less_newlines = min(size, end * WIDTH) - first * WIDTH
        offset += sum((directory / name).stat().st_size for name in names) - prefixes_less_newlines


def _check_all(stretches: Iterator[Stretch], processes: int) -> Iterator[Checked]:
    if processes == 1:
        yield from map(check_stretch, stretches)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=gc.disable) as pool:
        yield from pool.map(check_stretch, stretches)


class _Seen:
    """The requests of all stretches so far."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self.intents: set[bytes] = set()
        self.outcomes: set[bytes] = set()
        self.feedbacks = 0

    def add(self, part: Checked) -> None:
        for joined, seen in ((part.intents, self.intents), (part.outcomes, self.outcomes)):
            ids = _ids(joined)
            new = set(ids)
            if len(new) != len(ids) or not seen.isdisjoint(new):
                twice = next(number for number, times in Counter(ids).items() if times > 1 or number in seen)
                raise Refused(RECORDS, "records the same request twice", self._name(twice))
            seen |= new
        orphans = set(_ids(part.outcomes)) - self.intents
        if orphans:
            raise Refused(RECORDS, "has an outcome without an intent before it", self._name(min(orphans)))
        early = set(_ids(part.feedbacks)) - self.outcomes
        if early:
            raise Refused(RECORDS, "has feedback without an outcome before it", self._name(min(early)))
        self.feedbacks += len(part.feedbacks) // 16

    def _name(self, number: bytes) -> RecordName:
        return RecordName(self._tenant, None, f"req_{number.hex()}")


def _ids(joined: bytes) -> list[bytes]:
    return [joined[at : at + 16] for at in range(0, len(joined), 16)]


def _compare_digest(directory: Path, name: str, digest: bytes) -> None:
    found = sha256()
    with (directory / name).open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    if found.digest() != digest:
        raise Refused(name, "has been changed: it is not the file that the signed statement lists")


def _compare_tiles(directory: Path, size: int, levels: list[bytes], digests: dict[str, bytes]) -> None:
    for level, hashes in enumerate(levels[1:], 1):
        for index in range(-(-len(hashes) // TILE)):
            name = tile_name(level, index, size)
            if read_listed(directory, name, digests) != hashes[index * TILE : (index + 1) * TILE]:
                raise Refused(name, "does not hold the hashes that the records give")


def _compare_previous(previous: bytes, key: LogKey, size: int, levels: list[bytes]) -> int:
    earlier = open_checkpoint(previous, key, "previous checkpoint", others=True)
    if earlier.size > size:
        raise Refused(CHECKPOINT, f"covers {size} records, and the previous one covered {earlier.size}: rolled back")
    if root_at(earlier.size, levels) != earlier.root:
        raise Refused(CHECKPOINT, f"does not continue the previous one: its first {earlier.size} records are others")
    return earlier.size
