"""Records, checked a stretch at a time, so that several processes can share the work.

1. An entry is canonical JSON of schema 1, of the log's own tenant, and is an `intent`, an `outcome` or a `feedback`.
2. A request has one intent and at most one outcome, which comes after it. (An intent without an outcome is a
   request that was running, and is counted as open.) Feedback on a request, any number of times, comes after its
   outcome.
3. Tables that a record holds packed, because they were too long for it, are those of the digest beside them.
4. The bundle's hashes are the level-0 tile's, and its entries are the lines of the readable copy.
"""

from __future__ import annotations

import contextlib
import re
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from terraflow.verifier.formats import RecordName, Refused, Unreadable, parse_objects
from terraflow.verifier.layout import RECORDS, bundle_name, tile_name
from terraflow.verifier.packed import NOT_THOSE, tables_of
from terraflow.verifier.tree import HASH, TILE, WIDTH, leaf_hash, perfect_root

TOGETHER = 16
"""Records parsed at once: enough to save calls, few enough to stay in the processor's cache (8 to 32 are best)."""

_REQUEST_ID = re.compile(r"req_[0-9a-f]{32}").fullmatch
_NAMED_REQUEST = re.compile(rb'"request_id":"(req_[0-9a-f]{32})"').search
_TIME = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]{6}Z").fullmatch


class Stretch(NamedTuple):
    """Bundles first <= index < end of a log, what they must be, and where they begin in the readable copy."""

    directory: str
    tenant: str
    size: int
    first: int
    end: int
    digests: dict[str, bytes]
    offset: int


class Checked(NamedTuple):
    """What a stretch gave: joined leaf hashes, joined roots of its full tiles, joined ids by kind of record."""

    hashes: bytes
    tile_roots: bytes
    intents: bytes
    outcomes: bytes
    feedbacks: bytes


def check_stretch(stretch: Stretch) -> Checked:
    """Read and check a stretch's bundles and level-0 tiles. Raises Refused."""
    directory = Path(stretch.directory)
    hashes, roots = [], []
    facts = _Facts(stretch.tenant)
    with (directory / RECORDS).open("rb") as readable:
        readable.seek(stretch.offset)
        for index in range(stretch.first, stretch.end):
            name = bundle_name(index, stretch.size)
            entries = split_bundle(_read_bundle(stretch, name, index), name)
            if len(entries) != min(stretch.size - index * WIDTH, WIDTH):
                raise Refused(name, "holds another number of records than its name says")
            lines = b"\n".join(entries) + b"\n"
            found = readable.read(len(lines))
            if found != lines:
                shown = zip(entries, found.split(b"\n"), strict=False)
                at = next((at for at, (entry, line) in enumerate(shown) if entry != line), None)
                record = None if at is None else name_record(stretch.tenant, index * WIDTH + at, entries[at])
                raise Refused(RECORDS, f"differs from {name}", record)
            for at in range(0, len(entries), TOGETHER):
                facts.add_all(entries[at : at + TOGETHER], name, index * WIDTH + at)
            joined = b"".join(map(leaf_hash, entries))
            tile = tile_name(0, index, stretch.size)
            expected = read_listed(directory, tile, stretch.digests)
            if expected != joined:
                record = _first_changed(stretch, index, entries, expected)
                raise Refused(tile, f"does not hold the hashes of the records in {name}", record)
            hashes.append(joined)
            if len(joined) == TILE:
                roots.append(perfect_root(joined))
    ids = [b"".join(numbers) for numbers in (facts.intents, facts.outcomes, facts.feedbacks)]
    return Checked(b"".join(hashes), b"".join(roots), *ids)


def name_record(tenant: str, index: int | None, entry: bytes) -> RecordName:
    """What can be said of a record that does not hold: its text is looked at without being believed."""
    found = _NAMED_REQUEST(entry)
    return RecordName(tenant, index, found[1].decode() if found else None)


def _read_bundle(stretch: Stretch, name: str, index: int) -> bytes:
    """A bundle as the statement lists it; one that was changed is refused with its first changed record, which the
    hashes of the level-0 tile tell as long as that tile is whole."""
    directory = Path(stretch.directory)
    try:
        return read_listed(directory, name, stretch.digests)
    except Refused as refused:
        record = None
        with contextlib.suppress(Refused):
            entries = split_bundle((directory / name).read_bytes(), name)
            expected = read_listed(directory, tile_name(0, index, stretch.size), stretch.digests)
            record = _first_changed(stretch, index, entries, expected)
        raise Refused(refused.where, refused.what, record) from None


def _first_changed(stretch: Stretch, index: int, entries: list[bytes], expected: bytes) -> RecordName | None:
    """The first record of a bundle whose hash is not the tile's; none if there are fewer or more of them."""
    if len(expected) != len(entries) * HASH:
        return None
    for at, entry in enumerate(entries):
        if leaf_hash(entry) != expected[at * HASH : (at + 1) * HASH]:
            return name_record(stretch.tenant, index * WIDTH + at, entry)
    return None


class _Facts:
    """The request ids of a stretch, in order, by kind (rules 1 and 2)."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._ended: set[bytes] = set()
        self._spoken_of: set[bytes] = set()
        self.intents: list[bytes] = []
        self.outcomes: list[bytes] = []
        self.feedbacks: list[bytes] = []

    def add_all(self, entries: list[bytes], name: str, first: int) -> None:
        try:
            records = parse_objects(entries)
        except Unreadable as trouble:
            which = name_record(self._tenant, first + trouble.at, entries[trouble.at])
            raise Refused(f"{name}: record {first + trouble.at}", trouble.what, which) from None
        for number, record in enumerate(records, first):
            wrong = self._add(record)
            if wrong is not None:
                which = name_record(self._tenant, number, entries[number - first])
                raise Refused(f"{name}: record {number}", wrong, which)

    def _add(self, record: dict[str, Any]) -> str | None:
        """Take a record in, or say what is wrong with it."""
        schema, request_id, time = record.get("schema"), record.get("request_id"), record.get("time")
        if schema != 1 or type(schema) is not int:
            return "is not of schema 1"
        if record.get("tenant") != self._tenant:
            return "is of another tenant"
        if not isinstance(request_id, str) or _REQUEST_ID(request_id) is None:
            return "names no request"
        if not isinstance(time, str) or _TIME(time) is None:
            return "has no time of its own"
        if "detached" in record and tables_of(record["detached"]) is None:
            return NOT_THOSE
        number = bytes.fromhex(request_id[4:])
        kind = record.get("kind")
        if kind == "outcome":
            if number in self._spoken_of:
                return "is an outcome that comes after feedback on it"
            self._ended.add(number)
            self.outcomes.append(number)
        elif kind == "feedback":
            if number not in self._ended:
                self._spoken_of.add(number)
            self.feedbacks.append(number)
        elif kind != "intent":
            return "is neither an intent nor an outcome nor a feedback"
        elif number in self._ended:
            return "is an intent that comes after its outcome"
        else:
            self.intents.append(number)
        return None


def read_listed(directory: Path, name: str, digests: dict[str, bytes]) -> bytes:
    """A file's bytes, if they are the ones the statement lists."""
    raw = (directory / name).read_bytes()
    if sha256(raw).digest() != digests[name]:
        raise Refused(name, "has been changed: it is not the file that the signed statement lists")
    return raw


def split_bundle(raw: bytes, where: str) -> list[bytes]:
    """The entries of a bundle: each behind its length, two bytes, big-endian."""
    entries, at, end = [], 0, len(raw)
    while at < end:
        start = at + 2
        at = start + (raw[start - 2] << 8 | raw[start - 1]) if start <= end else end + 1
        entries.append(raw[start:at])
    if at != end:
        raise Refused(where, "is cut short")
    return entries
