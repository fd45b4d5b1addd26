"""Behaviour of any store of batches: files, batches, items, their ends and their erasure."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from terraflow.core.types import MICRO, Instant
from terraflow.ports.batches import Batch, BatchFile, BatchStatus, Page, Room
from terraflow.ports.store import Claimed, KeyOutcome, StoreConflict
from terraflow.storage.sqlite.batch_files import BEGUN_S, PIECE_BYTES
from terraflow.storage.sqlite.batches import ITEMS_AT_ONCE
from terraflow.storage.sqlite.erasure import SOME as ERASED_AT_ONCE
from terraflow.storage.sqlite.store import SqliteStore, open_store
from tests.storage.makers import HOUR, NOW, SetClock, answer, claim, entry, files_with, request_id

ROOM = Room(open_max=3, bytes_max=10_000_000)


def batch(name: str = "batch_1", **changes: Any) -> Batch:
    chosen: dict[str, Any] = {
        "id": name,
        "tenant": "acme",
        "application": "app",
        "key_id": "key_1",
        "endpoint": "/v1/chat/completions",
        "input_file": None,
        "workload": "night",
        "data_class": "internal",
        "sensitive_types": ("pci", "pii"),
        "window": "24h",
        "metadata": b'{"for":"the report"}',
        "created_at": NOW,
        "expires_at": Instant(NOW + 24 * HOUR),
    }
    return Batch(**chosen | changes)


def file(file_id: str = "file-1", size: int = 0, **changes: Any) -> BatchFile:
    chosen: dict[str, Any] = {
        "id": file_id,
        "tenant": "acme",
        "application": "app",
        "name": "asked.jsonl",
        "size_bytes": size,
        "created_at": NOW,
        "expires_at": Instant(NOW + HOUR),
    }
    return BatchFile(**chosen | changes)


async def opened(store: SqliteStore, *items: bytes, **changes: Any) -> Batch:
    made = await store.batches.open_batch(batch(**changes), items, ROOM)
    assert made is not None
    return made


async def found(store: SqliteStore, wanted: Batch) -> Batch:
    again = await store.batches.find_batch(wanted.tenant, wanted.application, wanted.id, NOW)
    assert again is not None
    return again


async def test_a_file_is_kept_in_pieces_and_read_again(store: SqliteStore) -> None:
    data = bytes(range(256)) * (PIECE_BYTES // 256) * 2 + b"the end"
    made = file(size=len(data))
    assert await store.batches.keep_file(made, data, 10_000_000)
    assert await store.batches.find_file("acme", "app", made.id, NOW) == made
    pieces = [await store.batches.read_piece(made, no) for no in range(4)]
    assert pieces[3] is None
    assert b"".join(piece or b"" for piece in pieces) == data


async def test_a_file_is_its_applications_until_it_expires_or_is_dropped(store: SqliteStore) -> None:
    assert await store.batches.keep_file(file(size=3), b"abc", 10_000_000)
    for tenant, application in (("globex", "app"), ("acme", "other")):
        assert await store.batches.find_file(tenant, application, "file-1", NOW) is None
        assert not await store.batches.drop_file(tenant, application, "file-1", NOW)
    assert await store.batches.find_file("acme", "app", "file-1", Instant(NOW + HOUR)) is None
    assert await store.batches.drop_file("acme", "app", "file-1", NOW)
    assert await store.batches.find_file("acme", "app", "file-1", NOW) is None
    assert await store.batches.read_piece(file(), 0) is None
    assert not await store.batches.drop_file("acme", "app", "file-1", NOW)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_an_applications_files_in_their_order_page_by_page(store: SqliteStore, newest_first: bool) -> None:
    made = [file(f"file-{n}", created_at=Instant(NOW + n // 2)) for n in range(5)]
    others = [file("file-x", tenant="globex"), file("file-y", application="other"), file("file-z", expires_at=NOW)]
    for one in [*made, *others]:
        assert await store.batches.keep_file(one, b"", 10_000_000)
    found: list[BatchFile] = []
    while True:
        behind = (found[-1].created_at, found[-1].id) if found else None
        page = Page(behind=behind, newest_first=newest_first, limit=2)
        listed = await store.batches.list_files("acme", "app", page, NOW)
        if not listed:
            break
        found += listed
    assert found == (made[::-1] if newest_first else made)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_batches_with_results_in_the_order_of_their_ends(store: SqliteStore, newest_first: bool) -> None:
    names = ["batch_3", "batch_1", "batch_2"]
    for number, name in enumerate(names):
        made, request = await opened(store, b"a", name=name), request_id()
        await store.batches.take_item(made, -1, request)
        await store.batches.end_item(made, 0, request, completed=True, line=b"line", key="k" * 64, now=NOW)
        await store.batches.end_batch(made, BatchStatus.COMPLETED, Instant(NOW + number), Instant(NOW + HOUR))
    nothing = await opened(store, name="batch_nothing")
    await store.batches.end_batch(nothing, BatchStatus.FAILED, NOW, Instant(NOW + HOUR))
    await opened(store, b"a", name="batch_open")

    async def listed(now: Instant = NOW, tenant: str = "acme", **changes: Any) -> list[str]:
        chosen: dict[str, Any] = {"behind": None, "newest_first": newest_first, "limit": 9}
        found = await store.batches.list_results(tenant, "app", Page(**chosen | changes), now)
        return [one.id for one in found]

    assert await listed() == (names[::-1] if newest_first else names)
    assert await listed(behind=(Instant(NOW + 1), "batch_1"), limit=1) == ["batch_1"]
    assert await listed(Instant(NOW + HOUR)) == []
    assert await listed(tenant="globex") == []


async def test_what_is_left_of_a_file_that_was_not_kept_to_its_end_goes_before_long(
    store: SqliteStore, clock: SetClock
) -> None:
    week = Instant(NOW + 168 * HOUR)
    assert await store.batches.keep_file(file("file-2", 3, expires_at=week), b"abc", 10_000_000)
    whole = store._database.read("batch_bytes")
    keeping = asyncio.create_task(store.batches.keep_file(file(expires_at=week), b"x" * 9 * PIECE_BYTES, 10_000_000))
    while store._database.read("batch_bytes")[0][0] < PIECE_BYTES:  # noqa: ASYNC110  nothing tells of it
        await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert store._database.read("batch_bytes")[0][0] > PIECE_BYTES
    clock.time += BEGUN_S * MICRO
    await store.erase()
    assert store._database.read("batch_bytes") == whole
    assert await store.batches.find_file("acme", "app", "file-1", NOW) is None
    assert await store.batches.find_file("acme", "app", "file-2", clock.time) is not None


@pytest.mark.parametrize("pieces", [1, ERASED_AT_ONCE + 1])
async def test_a_file_that_is_erased_while_it_is_kept_leaves_nothing_that_takes_room(
    pieces: int, store: SqliteStore, clock: SetClock
) -> None:
    data = b"x" * (ERASED_AT_ONCE + 9) * PIECE_BYTES
    keeping = asyncio.create_task(store.batches.keep_file(file(), data, 10_000_000))
    while store._database.read("batch_bytes")[0][0] < pieces * PIECE_BYTES:  # noqa: ASYNC110  nothing tells of it
        await asyncio.sleep(0)
    await store.erase(before=Instant(NOW + 1))
    with pytest.raises(StoreConflict):
        await keeping
    assert await store.batches.find_file("acme", "app", "file-1", NOW) is None
    clock.time += BEGUN_S * MICRO
    await store.erase()
    assert store._database.read("batch_bytes") == [(0,)]


async def test_there_is_room_for_so_many_bytes_and_open_batches(store: SqliteStore, clock: SetClock) -> None:
    assert await store.batches.keep_file(file(size=60), b"x" * 60, 100)
    assert not await store.batches.keep_file(file("file-2", 60), b"x" * 60, 100)
    assert await store.batches.open_batch(batch("big"), [b"y" * 10_000_000], ROOM) is None
    for number in range(3):
        await opened(store, b"a", name=f"batch_{number}")
    assert await store.batches.open_batch(batch("more"), [b"a"], ROOM) is None
    assert await store.batches.open_batch(batch("theirs", tenant="globex"), [b"a"], ROOM) is not None
    await store.batches.drop_file("acme", "app", "file-1", NOW)
    clock.time += HOUR
    assert (await store.erase()).answers == 0
    total = store._database.read("batch_bytes")
    stored = store._database.writer.execute("SELECT sum(length(data)) FROM batch_item").fetchall()
    assert total == stored


async def test_what_is_handed_in_at_once_fits_in_together(store: SqliteStore) -> None:
    size = 3 * PIECE_BYTES
    room = Room(open_max=9, bytes_max=2 * size + PIECE_BYTES)

    async def kept(no: int) -> bool:
        return await store.batches.keep_file(file(f"file-{no}", size), b"x" * size, room.bytes_max)

    async def made(no: int) -> bool:
        items = [b"y" * PIECE_BYTES] * 3
        return await store.batches.open_batch(batch(f"batch_{no}"), items, room) is not None

    fitted = await asyncio.gather(kept(1), made(1), kept(2), made(2))
    assert sum(fitted) == 2
    ((stored,),) = store._database.read("batch_bytes")
    assert 2 * size <= stored <= room.bytes_max
    assert await store.batches.keep_file(file("small", 9), b"x" * 9, room.bytes_max), "nothing is on its way any more"


async def test_what_never_came_takes_no_room(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreConflict("add_batch_file_part")

    with monkeypatch.context() as patched:
        patched.setattr(store.batches, "_once", full)
        with pytest.raises(StoreConflict):
            await store.batches.keep_file(file(size=90), b"x" * 90, 100)
    assert await store.batches.keep_file(file("file-2", 90), b"x" * 90, 100)


async def test_a_batch_is_found_as_it_was_made(store: SqliteStore) -> None:
    made = await opened(store, *(b"item %d" % no for no in range(ITEMS_AT_ONCE * 2 + 5)))
    assert (made.status, made.total, made.in_progress_at) == (BatchStatus.IN_PROGRESS, ITEMS_AT_ONCE * 2 + 5, NOW)
    assert (made.sensitive_types, made.metadata, made.window) == (("pci", "pii"), b'{"for":"the report"}', "24h")
    assert await found(store, made) == made
    assert await store.batches.open_batches() == [made]
    assert await store.batches.find_batch("acme", "other", made.id, NOW) is None
    assert await store.batches.find_batch("globex", "app", made.id, NOW) is None


async def test_an_applications_batches_newest_first_page_by_page(store: SqliteStore) -> None:
    for number in range(3):
        await opened(store, b"a", name=f"batch_{number}", created_at=Instant(NOW + number))
    await opened(store, b"a", name="other", tenant="globex")
    first = await store.batches.list_batches("acme", "app", None, 2, NOW)
    assert [one.id for one in first] == ["batch_2", "batch_1"]
    rest = await store.batches.list_batches("acme", "app", first[-1], 2, NOW)
    assert [one.id for one in rest] == ["batch_0"]
    assert await store.batches.list_batches("acme", "app", rest[-1], 2, NOW) == []


async def test_every_item_is_taken_once_in_order_whoever_asks(store: SqliteStore) -> None:
    made = await opened(store, *(b"%d" % no for no in range(40)))
    taken = await asyncio.gather(*(store.batches.take_item(made, -1, request_id()) for _ in range(50)))
    numbers = [item.no for item in taken if item is not None]
    assert numbers == list(range(40))
    assert [item.data for item in taken if item is not None] == [b"%d" % no for no in range(40)]
    assert len(await store.batches.running_items(made)) == 40
    assert await store.batches.queued_items(made, 9) == []


async def test_an_item_that_did_nothing_is_queued_again_in_its_place(store: SqliteStore) -> None:
    made = await opened(store, b"a", b"b")
    first, again = request_id(), request_id()
    await store.batches.take_item(made, -1, first)
    await store.batches.return_item(made, 0, first)
    item = await store.batches.take_item(made, -1, again)
    assert item is not None and (item.no, item.request_id, item.data) == (0, again, b"a")
    with pytest.raises(StoreConflict):
        await store.batches.return_item(made, 0, first)


async def test_items_are_taken_round_and_round(store: SqliteStore) -> None:
    made = await opened(store, b"a", b"b", b"c")
    for behind, no in ((0, 1), (0, 2), (0, 0), (0, None), (-1, None)):
        item = await store.batches.take_item(made, behind, request_id())
        assert (None if item is None else item.no) == no


async def test_an_item_ends_once_and_under_its_own_request(store: SqliteStore) -> None:
    made = await opened(store, b"a", b"b", b"c")
    one, two = request_id(), request_id()
    await store.batches.take_item(made, -1, one)
    await store.batches.take_item(made, -1, two)
    end = store.batches.end_item
    with pytest.raises(StoreConflict):
        await end(made, 0, two, completed=True, line=b"stolen", key="k", now=NOW)
    await end(made, 0, one, completed=True, line=b"the answer", key="k", now=NOW)
    await end(made, 1, two, completed=False, line=b"an error", key="k", now=NOW)
    for no, request in ((0, one), (1, two)):
        with pytest.raises(StoreConflict):
            await end(made, no, request, completed=True, line=b"again", key="k", now=NOW)
    await store.batches.end_queued(made, [(2, b"too late")], NOW)
    with pytest.raises(StoreConflict):
        await store.batches.end_queued(made, [(2, b"twice")], NOW)
    after = await found(store, made)
    assert (after.completed, after.failed, after.output_bytes, after.error_bytes) == (1, 2, 10, 16)
    assert await store.batches.results(made, completed=True, after=-1, limit=9) == [(0, b"the answer")]
    assert await store.batches.results(made, completed=False, after=-1, limit=1) == [(1, b"an error")]
    assert await store.batches.results(made, completed=False, after=1, limit=9) == [(2, b"too late")]


async def test_queued_items_end_together_or_none_of_them_does(store: SqliteStore) -> None:
    made = await opened(store, b"a", b"b", b"c")
    await store.batches.take_item(made, 0, request_id())
    with pytest.raises(StoreConflict):
        await store.batches.end_queued(made, [(0, b"one"), (1, b"two"), (2, b"three")], NOW)
    assert [item.no for item in await store.batches.queued_items(made, 9)] == [0, 2]
    assert (await found(store, made)).failed == 0


async def test_what_was_kept_for_a_replay_goes_with_the_items_end(store: SqliteStore) -> None:
    made = await opened(store, b"a")
    request = request_id()
    await store.batches.take_item(made, -1, request)
    await store.claim(claim(request), NOW)
    await store.finish(
        [entry(request, "outcome")],
        (),
        answer(request),
        KeyOutcome("acme", "app", "k" * 64, request, True, 200, "PERMITTED"),
    )
    assert await store.batches.answer_of("acme", request, NOW) == b"the answer"
    await store.batches.end_item(made, 0, request, completed=True, line=b"line", key="k" * 64, now=NOW)
    assert await store.batches.answer_of("acme", request, NOW) is None
    assert await store.claim(claim(request_id(), body="c" * 64), NOW) == Claimed()


async def test_a_batch_goes_its_way_and_ends_once(store: SqliteStore) -> None:
    made = await opened(store, b"a")
    await store.batches.cancel_batch(made, Instant(NOW + 1))
    await store.batches.finalize_batch(made, Instant(NOW + 2))
    after = await found(store, made)
    assert (after.status, after.cancelling_at, after.finalizing_at) == (BatchStatus.CANCELLING, NOW + 1, None)
    await store.batches.end_batch(made, BatchStatus.CANCELLED, Instant(NOW + 3), Instant(NOW + HOUR))
    with pytest.raises(StoreConflict):
        await store.batches.end_batch(made, BatchStatus.COMPLETED, Instant(NOW + 4), Instant(NOW + HOUR))
    await store.batches.cancel_batch(made, Instant(NOW + 5))
    after = await found(store, made)
    assert (after.status, after.ended_at, after.erase_at) == (BatchStatus.CANCELLED, NOW + 3, NOW + HOUR)
    assert await store.batches.open_batches() == []
    assert await store.batches.find_batch("acme", "app", made.id, Instant(NOW + HOUR)) is None
    assert await store.batches.list_batches("acme", "app", None, 9, Instant(NOW + HOUR)) == []


async def test_a_batch_whose_time_is_over_is_erased_with_its_items(store: SqliteStore, clock: SetClock) -> None:
    made = await opened(store, *(b"%d" % no for no in range(40)))
    kept = await opened(store, b"kept", name="batch_2")
    await store.batches.end_batch(made, BatchStatus.CANCELLED, NOW, Instant(NOW + HOUR))
    assert (await store.erase()).answers == 0
    clock.time += HOUR
    assert (await store.erase()).answers == 41
    rows = store._database.writer.execute("SELECT batch FROM batch_item").fetchall()
    assert rows == [(kept.id,)]
    assert await store.batches.open_batches() == [kept]


async def test_erasing_by_request_and_by_age(store: SqliteStore) -> None:
    made = await opened(store, b"a", b"b", b"still to run")
    requests = [request_id() for _ in range(2)]
    for no, request in enumerate(requests):
        await store.batches.take_item(made, -1, request)
        end = store.batches.end_item
        await end(made, no, request, completed=True, line=b"line", key="k", now=Instant(NOW + no))
    await store.batches.keep_file(file(size=3), b"abc", 10_000_000)
    assert (await store.erase(tenant="globex", request_id=requests[0])).answers == 0
    assert (await store.erase(tenant="acme", request_id=requests[0])).answers == 1
    assert await store.batches.results(made, completed=True, after=-1, limit=9) == [(0, b""), (1, b"line")]
    assert (await store.erase(tenant="globex", before=Instant(NOW + 9))).answers == 0
    assert (await store.erase(before=Instant(NOW + 9))).answers == 3
    assert await store.batches.results(made, completed=True, after=-1, limit=9) == [(0, b""), (1, b"")]
    assert await store.batches.find_file("acme", "app", "file-1", NOW) is None
    assert [item.data for item in await store.batches.queued_items(made, 9)] == [b"still to run"]
    await store.batches.end_batch(made, BatchStatus.CANCELLED, NOW, Instant(NOW + HOUR))
    assert (await store.erase(before=Instant(NOW + 9))).answers == 1
    assert (await found(store, made)).metadata == b""


async def test_what_is_sealed_opens_with_its_own_key_and_in_its_own_row(tmp_path: Path, clock: SetClock) -> None:
    store = open_store(tmp_path, clock=clock, answer_key=b"k" * 32)
    made = await opened(store, b"first secret", b"second secret", metadata=b'{"a":"third secret"}')
    await store.batches.keep_file(file(size=13, name="fourth secret"), b"fifth secret", 10_000_000)
    request = request_id()
    await store.batches.take_item(made, -1, request)
    await store.batches.end_item(made, 0, request, completed=True, line=b"sixth secret", key="k", now=NOW)
    await store.close()
    assert files_with(tmp_path, b"secret") == []
    for key, seen in ((b"o" * 32, None), (None, None), (b"k" * 32, b"second secret")):
        store = open_store(tmp_path, clock=clock, answer_key=key)
        [item] = await store.batches.queued_items(made, 9)
        assert item.data == seen
        [(_, line)] = await store.batches.results(made, completed=True, after=-1, limit=9)
        assert line == (b"" if seen is None else b"sixth secret")
        await store.close()
    store = open_store(tmp_path, clock=clock, answer_key=b"k" * 32)
    other = await opened(store, b"other", name="batch_2")
    store._database.writer.execute("UPDATE batch_item SET batch = 'batch_2', no = 7 WHERE no = 1")
    items = await store.batches.queued_items(other, 9)
    assert [item.data for item in items] == [b"other", None]
    await store.close()


@pytest.mark.parametrize("key", [None, b"k" * 32])
async def test_what_is_erased_of_batches_is_in_no_file(key: bytes | None, tmp_path: Path, clock: SetClock) -> None:
    store = open_store(tmp_path, clock=clock, answer_key=key)
    made = await opened(store, b"secret " * 1_000)
    await store.batches.keep_file(file(size=7_000), b"secret " * 1_000, 10_000_000)
    await store.batches.drop_file("acme", "app", "file-1", NOW)
    request = request_id()
    await store.batches.take_item(made, -1, request)
    await store.batches.end_item(made, 0, request, completed=True, line=b"line", key="k", now=NOW)
    await store.erase(before=Instant(NOW + 1))
    assert files_with(tmp_path, b"secret") == []
    await store.close()
