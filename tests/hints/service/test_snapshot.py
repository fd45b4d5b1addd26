"""The index on disk: what comes back, and what is not taken for a snapshot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
import xxhash

from terraflow.core.types import Instant
from terraflow.hints.index.index import Index
from terraflow.hints.snapshot import MAGIC, SnapshotDamaged, restore_snapshot, write_snapshot
from terraflow.hints.words import Entry, Report, Scope, Stats
from tests.hints.turns import others_turns

SCOPE = Scope("t", "m", "s")


class SetClock:
    """A clock that stands where it is put."""

    def __init__(self, wall_s: float, monotonic_s: float) -> None:
        self.wall_s = wall_s
        self.monotonic_s = monotonic_s

    def now(self) -> Instant:
        return Instant(int(self.wall_s * 1e6))

    def monotonic(self) -> float:
        return self.monotonic_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def filled(now: float) -> Index:
    index = Index(ttl_s=100.0)
    index.ingest(
        Report(
            replica="a",
            model="m",
            tenant="t",
            scheme="s",
            entries=(Entry("", [b"1", b"2"], [16, 32], 1), Entry("lora", [b"3"], [8], 2)),
            stats=Stats(hit_rate=0.5, client_version="v"),
        ),
        now,
    )
    index.ingest(
        Report(replica="b", model="m", tenant="t", scheme="s", entries=(Entry("", [b"1"], [16], 1),)), now + 10
    )
    return index


async def test_entries_come_back_as_old_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "made" / "index.snapshot"
    before = SetClock(1_000_000.0, 50.0)
    await write_snapshot(path, filled(30.0), before, {"feed-1": {"seq": 7}})
    assert path.stat().st_mode & 0o777 == 0o600
    after = SetClock(1_000_015.0, 3.0)
    index = Index(ttl_s=100.0)
    restored = await restore_snapshot(path, index, after)
    assert restored is not None
    assert (restored.entries, restored.age_s, restored.feeds) == (4, 15.0, {"feed-1": {"seq": 7}})
    held = {row.replica: row for row in index.chain(SCOPE, "", [b"1", b"2"], [16, 16], after.monotonic_s)}
    assert (held["a"].tokens, held["b"].tokens) == (32, 16)
    # Seen 20 and 10 seconds before the snapshot, which is 15 seconds old.
    assert after.monotonic_s - held["a"].seen_at == pytest.approx(35.0)
    assert after.monotonic_s - held["b"].seen_at == pytest.approx(25.0)
    assert index.stats("t", "m", "a") == (Stats(hit_rate=0.5, client_version="v"), pytest.approx(-32.0))


async def test_what_aged_out_while_the_service_was_down_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "index.snapshot"
    await write_snapshot(path, filled(30.0), SetClock(1_000.0, 50.0), {})
    after = SetClock(1_085.0, 3.0)
    index = Index(ttl_s=100.0)
    await restore_snapshot(path, index, after)
    assert list(index.replicas(SCOPE, after.monotonic_s)) == ["b"]


async def test_a_wall_clock_that_went_back_makes_nothing_younger(tmp_path: Path) -> None:
    path = tmp_path / "index.snapshot"
    await write_snapshot(path, filled(30.0), SetClock(1_000.0, 50.0), {})
    restored = await restore_snapshot(path, Index(), SetClock(900.0, 3.0))
    assert restored is not None
    assert restored.age_s == 0.0


async def test_no_file_is_no_snapshot(tmp_path: Path) -> None:
    assert await restore_snapshot(tmp_path / "none", Index(), SetClock(0.0, 0.0)) is None


async def test_every_cut_and_every_changed_byte_is_found_before_anything_is_used(tmp_path: Path) -> None:
    path, clock = tmp_path / "index.snapshot", SetClock(1_000.0, 50.0)
    await write_snapshot(path, filled(30.0), clock, {})
    whole = path.read_bytes()
    cuts = [whole[:size] for size in range(len(whole))]
    changed = [whole[:at] + bytes([byte ^ 1]) + whole[at + 1 :] for at, byte in enumerate(whole)]
    for damaged in (*cuts, *changed, whole + b"\0", whole.replace(MAGIC, b"terraflow-hints-snapshot/9\n")):
        path.write_bytes(damaged)
        index = Index()
        with pytest.raises(SnapshotDamaged):
            await restore_snapshot(path, index, clock)
        assert index.entries() == 0


async def test_what_cannot_be_written_leaves_the_last_snapshot(tmp_path: Path) -> None:
    path, clock = tmp_path / "index.snapshot", SetClock(1_000.0, 50.0)
    await write_snapshot(path, filled(30.0), clock, {})
    whole = path.read_bytes()

    class Torn(Index):
        def dump(self, now):  # type: ignore[no-untyped-def]
            yield next(iter(filled(now).dump(now)))
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        await write_snapshot(path, Torn(), clock, {})
    assert path.read_bytes() == whole
    assert not path.with_name("index.snapshot.part").exists()


async def test_others_have_their_turn_between_two_pieces(tmp_path: Path) -> None:
    index = filled(30.0)
    pieces = sum(1 for _ in index.dump(50.0))
    async with others_turns() as turns:
        await write_snapshot(tmp_path / "index.snapshot", index, SetClock(1_000.0, 50.0), {})
    assert turns.number > pieces


async def test_what_feeds_know_may_be_more_than_any_piece(tmp_path: Path) -> None:
    path, clock = tmp_path / "index.snapshot", SetClock(1_000_000.0, 50.0)
    known = {f"feed {i}": {"hashes": bytes(10 << 20)} for i in range(7)}
    await write_snapshot(path, filled(30.0), clock, known)
    restored = await restore_snapshot(path, Index(ttl_s=100.0), clock)
    assert restored is not None
    assert restored.feeds == known


async def test_what_is_nested_without_end_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "index.snapshot"
    deep = b"\x82\xa5at_us\x01\xa5feeds\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"
    frames, last = [MAGIC], 0
    for raw in (deep, msgspec.msgpack.encode(0)):
        last = xxhash.xxh3_64_intdigest(raw, seed=last)
        frames += [len(raw).to_bytes(4, "big"), last.to_bytes(8, "big"), raw]
    path.write_bytes(b"".join(frames))
    with pytest.raises(SnapshotDamaged):
        await restore_snapshot(path, Index(), SetClock(1.0, 1.0))
