"""The index on disk, so that a restarted service answers at once.

1. A snapshot is written in pieces: the loop makes one, a thread encodes and writes it, and between two pieces
   everybody else has their turn. It takes its name only when it is whole and on the disk.
2. A file is `MAGIC`, then frames of length (u32), XXH3-64 (u64, seeded with the frame before) and msgpack, all big
   endian: a head, pieces, and a tail with their number. What is cut short, changed or reordered does not check.
3. A snapshot is checked as a whole before anything of it is used. One that is damaged, or of another version, is
   reported and ignored: it costs cache misses.
4. Ages count on while the service is down, by the wall clock: entries come back as old as they are. A wall clock that
   went back makes nothing younger than it was.
5. Where the feeds stood is taken before the first piece, so that what came while it was written is replayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import xxhash

from terraflow.hints.index.index import Index
from terraflow.hints.index.said import Piece
from terraflow.ports.runtime import Clock

log = logging.getLogger("terraflow.hints")

MAGIC = b"terraflow-hints-snapshot/1\n"
_FRAME_HEAD = 12

_encode = msgspec.msgpack.Encoder().encode
_piece = msgspec.msgpack.Decoder(Piece)


class SnapshotDamaged(Exception):
    """The file is no whole snapshot of this version; the message says why."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """When the snapshot was begun, in microseconds since the epoch, and where each feed stood."""

    at_us: int
    feeds: Mapping[str, Any] = {}


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, and how old it was."""

    entries: int
    age_s: float
    feeds: Mapping[str, Any]


class _Writer:
    """Frames into a file that has no name yet. Used by one thread at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._last = 0
        self.size = file.write(MAGIC)

    def add(self, content: object) -> None:
        raw = _encode(content)
        self._last = xxhash.xxh3_64_intdigest(raw, seed=self._last)
        self.size += self._file.write(len(raw).to_bytes(4, "big") + self._last.to_bytes(8, "big") + raw)


async def write_snapshot(path: Path, index: Index, clock: Clock, feeds: Mapping[str, Any]) -> None:
    """Write the index to `path`, in place of what is there. Raises OSError, and leaves the old one then."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = path.with_name(path.name + ".part")
    head, pieces = Head(at_us=clock.now(), feeds=feeds), index.dump(clock.monotonic())
    file = await asyncio.to_thread(_open_new, unfinished)
    entries = count = 0
    try:
        with file:
            writer = _Writer(file)
            await asyncio.to_thread(writer.add, head)
            for piece in pieces:
                await asyncio.to_thread(writer.add, piece)
                entries += len(piece.rows)
                count += 1
            await asyncio.to_thread(writer.add, count)
            await asyncio.to_thread(_sync, file)
        await asyncio.to_thread(_name, unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    log.debug("a snapshot of %d entries has %d bytes", entries, writer.size)


def _open_new(path: Path) -> IO[bytes]:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _name(unfinished: Path, path: Path) -> None:
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


async def restore_snapshot(path: Path, index: Index, clock: Clock) -> Restored | None:
    """Bring a snapshot back into an empty index; None when there is none. Raises SnapshotDamaged, OSError."""
    try:
        head = await asyncio.to_thread(check, path)
    except FileNotFoundError:
        return None
    age_s = max(0.0, (clock.now() - head.at_us) / 1e6)
    then = clock.monotonic() - age_s
    entries = 0
    for piece in read_pieces(path):
        index.restore(piece, then)
        entries += len(piece.rows)
        await asyncio.sleep(0)
    return Restored(entries=entries, age_s=age_s, feeds=head.feeds)


def check(path: Path) -> Head:
    """The head of a snapshot of which every frame is whole. Raises SnapshotDamaged, OSError."""
    try:
        frames = read_frames(path)
        head = msgspec.msgpack.decode(next(frames), type=Head)
        frames_read, tail = 0, b""
        for frame in frames:
            frames_read, tail = frames_read + 1, frame
        if not tail or msgspec.msgpack.decode(tail, type=int) != frames_read - 1:
            raise SnapshotDamaged("it ends too early")
    except (StopIteration, msgspec.DecodeError, RecursionError):
        raise SnapshotDamaged("its frames are not what this version writes") from None
    return head


def read_pieces(path: Path) -> Iterator[Piece]:
    """The pieces of a snapshot. Raises SnapshotDamaged, OSError."""
    frames = read_frames(path)
    next(frames)
    before: bytes | None = None
    for raw in frames:
        if before is not None:
            yield _decoded(before)
        before = raw


def _decoded(raw: bytes) -> Piece:
    try:
        return _piece.decode(raw)
    except msgspec.DecodeError:
        raise SnapshotDamaged("a piece is not what this version writes") from None


def read_frames(path: Path) -> Iterator[bytes]:
    """The content of each frame, checked. Raises SnapshotDamaged, OSError."""
    last = 0
    with path.open("rb") as file:
        whole = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) != MAGIC:
            raise SnapshotDamaged("it is not a snapshot of this version")
        while head := file.read(_FRAME_HEAD):
            size = int.from_bytes(head[:4], "big")
            raw = file.read(size) if size <= whole else b""
            last = xxhash.xxh3_64_intdigest(raw, seed=last)
            if len(head) < _FRAME_HEAD or len(raw) != size or head[4:] != last.to_bytes(8, "big"):
                raise SnapshotDamaged("its content does not match its checksum")
            yield raw
