"""An export: one tenant's log as files that a stranger can verify with a public key and nothing else.

    checkpoint               the latest signed note
    checkpoints.jsonl        signed notes published up to it, one a line: {"checkpoint": …}; the latest is the last
    records.jsonl            the records, one a line, for reading
    tile/entries/<N>[.p/<W>] the records as C2SP tlog-tiles packs them
    tile/<L>/<N>[.p/<W>]     the Merkle tree's hashes
    statement.dsse.json      an in-toto statement with the SHA-256 of every other file, signed with the log's key

1. The same log at the same checkpoint gives the same bytes: nothing in it depends on when or where it is made.
2. The statement is written last; a directory without one is no export.
3. An export is written into a directory that is new or empty.
4. Of a long history of checkpoints about a thousand go into an export, evenly spaced by size; what an auditor saw in
   between is still shown to be continued, by `terraflow verify --previous`.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.core.canonical import canonical
from terraflow.core.signature import sign_envelope
from terraflow.evidence.checkpoint import open_checkpoint, origin
from terraflow.evidence.merkle import HASH_BYTES, TILE_WIDTH, TileMissing
from terraflow.evidence.tiles import bundle_path, encode_bundle, tile_path, tiles_of
from terraflow.ports.ledger import Ledger

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
STATEMENT_PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:terraflow:evidence-export:v1"
STATEMENT = "statement.dsse.json"

HISTORY_MAX = 1_000
"""Checkpoints of an export: a quiet log signs nearly one a record, and each costs a verifier 0.1 ms."""

Progress = Callable[[int, int], None]
"""Called with the number of records written so far, and of all."""


class NothingToExport(Exception):
    """The tenant has no signed checkpoint: there is no log, or none of it is published yet."""


class ExportExists(Exception):
    """The directory to export into already holds something."""


class Exported(msgspec.Struct, frozen=True):
    """What was written; `size` counts records."""

    origin: str
    size: int
    files: int


class _Folder:
    """The export's directory, and the digest of every file put into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digests: dict[str, str] = {}

    def put(self, name: str, data: bytes) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        self.digests[name] = sha256(data).hexdigest()


def write_export(
    ledger: Ledger,
    tenant: str,
    out: Path,
    key: Ed25519PrivateKey,
    progress: Progress = lambda _done, _all: None,
) -> Exported:
    """Export a tenant's log up to its latest checkpoint. What is appended meanwhile is left for the next one.

    Raises NothingToExport, ExportExists, TileMissing, NoteInvalid, StoreUnavailable, OSError.
    """
    note = ledger.checkpoint(tenant)
    if note is None:
        raise NothingToExport(tenant)
    size = open_checkpoint(note, tenant, key.public_key()).size
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ExportExists(str(out))
    folder = _Folder(out)
    folder.put("checkpoint", note)
    _put_history(folder, ledger, tenant, key, size)
    _put_records(folder, ledger, tenant, size, progress)
    for level, index, width in tiles_of(size):
        hashes = ledger.tile(tenant, level, index)
        if hashes is None or len(hashes) < width * HASH_BYTES:
            raise TileMissing(level, index)
        folder.put(tile_path(level, index, width), hashes[: width * HASH_BYTES])
    (out / STATEMENT).write_bytes(sign_envelope(_statement(tenant, folder), STATEMENT_PAYLOAD_TYPE, key))
    return Exported(origin(tenant), size, len(folder.digests) + 1)


def _put_history(folder: _Folder, ledger: Ledger, tenant: str, key: Ed25519PrivateKey, size: int) -> None:
    lines, due, step = [], 0, -(-size // HISTORY_MAX)
    for note in ledger.checkpoints(tenant):
        claimed = int(note.split(b"\n", 2)[1])
        if claimed > size:
            break
        if claimed >= due or claimed == size:
            due = open_checkpoint(note, tenant, key.public_key()).size + step
            lines.append(canonical({"checkpoint": note.decode()}) + b"\n")
    folder.put("checkpoints.jsonl", b"".join(lines))


def _put_records(folder: _Folder, ledger: Ledger, tenant: str, size: int, progress: Progress) -> None:
    found = sha256()
    with (folder.path / "records.jsonl").open("wb") as readable:
        for start in range(0, size, TILE_WIDTH):
            end = min(start + TILE_WIDTH, size)
            entries = [leaf.data for leaf in ledger.leaves(tenant, start, end)]
            folder.put(bundle_path(start // TILE_WIDTH, end - start), encode_bundle(entries))
            lines = b"\n".join(entries) + b"\n"
            found.update(lines)
            readable.write(lines)
            progress(end, size)
    folder.digests["records.jsonl"] = found.hexdigest()


def _statement(tenant: str, folder: _Folder) -> bytes:
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(folder.digests.items())
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": {"origin": origin(tenant)},
        }
    )
