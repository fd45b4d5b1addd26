"""The disk fails, another process holds the lock, rows are changed behind the store's back."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from terraflow.ports.store import Claimed, Erased, Held, Reserved, Settlement, StoreUnavailable
from terraflow.storage.sqlite.committer import NOTES_MAX
from terraflow.storage.sqlite.connection import Database
from terraflow.storage.sqlite.folder import DATABASE, FolderInUse, plane_runs
from terraflow.storage.sqlite.schema import DatabaseUnusable
from terraflow.storage.sqlite.store import SqliteStore, open_store
from terraflow.storage.sqlite.tools import open_tools
from tests.storage.makers import NOW, SetClock, answer, budgets, claim, entry, files_with, line, request_id, reservation


class Disk:
    """A disk whose next syncs fail: before anything is written, or after it has all arrived."""

    def __init__(self) -> None:
        self.fail_before = 0
        self.fail_after = 0
        self.opened = 0
        self.rolled_back: Callable[[], object] = lambda: None

    def connect(self, path: str, **options: Any) -> sqlite3.Connection:
        self.opened += 1
        disk = self

        class Cursor(sqlite3.Cursor):
            def execute(self, statement: str, parameters: Any = ()) -> sqlite3.Cursor:
                if statement == "ROLLBACK":
                    super().execute(statement, parameters)
                    disk.rolled_back()
                    return self
                if statement != "COMMIT":
                    return super().execute(statement, parameters)
                if disk.fail_before:
                    disk.fail_before -= 1
                    raise sqlite3.OperationalError("disk I/O error")
                super().execute(statement, parameters)
                if disk.fail_after:
                    disk.fail_after -= 1
                    raise sqlite3.OperationalError("disk I/O error")
                return self

        class Connection(sqlite3.Connection):
            def cursor(self, factory: Callable[..., sqlite3.Cursor] = Cursor) -> sqlite3.Cursor:
                return super().cursor(factory)

        return sqlite3.connect(path, factory=Connection, **options)


async def until_up(store: SqliteStore) -> None:
    for _ in range(200):
        try:
            await store.settle(())
        except StoreUnavailable:
            await asyncio.sleep(0.01)
        else:
            return
    pytest.fail("the store did not come back")


@pytest.mark.parametrize("moment", ["fail_before", "fail_after"])
async def test_a_failed_commit_is_not_tried_again_and_everything_is_reopened(tmp_path: Path, moment: str) -> None:
    disk = Disk()
    store = open_store(tmp_path, clock=SetClock(), connect=disk.connect)
    kept, lost, waiting, noted = request_id(), request_id(), request_id(), request_id()
    await store.begin([entry(kept)], reservation(kept, 5, line(100)))
    opened = disk.opened
    setattr(disk, moment, 1)
    store.note([entry(noted, "outcome")])
    first = asyncio.create_task(store.begin([entry(lost)], reservation(lost, 7, line(100))))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.create_task(store.begin([entry(waiting)], None))  # type: ignore[arg-type]
    for failed in (first, second):
        with pytest.raises(StoreUnavailable):
            await failed
    await until_up(store)
    assert disk.opened >= opened + 2
    arrived = moment == "fail_after"
    assert bool(await store.find_entries("acme", "app", lost)) is arrived
    assert [b.reserved for b in budgets(store, "acme")] == [12 if arrived else 5]
    assert await store.find_entries("acme", "app", waiting) == []
    await store.finish([entry(kept, "outcome")], [Settlement(f"{kept}/1", 5)])
    await asyncio.sleep(0.25)
    assert len(await store.find_entries("acme", "app", noted)) == 1
    leaves = [leaf for r in (kept, lost, noted) for leaf in await store.find_entries("acme", "app", r)]
    assert sorted(leaf.index for leaf in leaves) == list(range(len(leaves)))
    await store.close()


async def test_a_failed_commit_of_nothing_is_told_and_reopened_all_the_same(tmp_path: Path) -> None:
    disk = Disk()
    store = open_store(tmp_path, clock=SetClock(), connect=disk.connect)
    opened, disk.fail_before = disk.opened, 1
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(5):
            await store.settle(())
    await until_up(store)
    assert disk.opened >= opened + 2
    await store.close()


async def test_nothing_runs_on_a_connection_that_a_thread_is_closing(tmp_path: Path) -> None:
    """The interpreter lets the thread go on in the middle of the loop's statement: closed under it, it ended the
    process."""
    disk = Disk()
    store = open_store(tmp_path, clock=SetClock(), connect=disk.connect)
    used, let_go = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        used.set()
        let_go.wait(10)

    holding = asyncio.create_task(asyncio.to_thread(store._database.sibling().use, hold))
    await asyncio.to_thread(used.wait, 10)
    disk.fail_before = 1
    with pytest.raises(StoreUnavailable):
        await store.begin([entry(request_id())], None)
    with pytest.raises(StoreUnavailable):
        await store.find_entries("acme", "app", request_id())
    let_go.set()
    await holding
    await until_up(store)
    assert await store.find_entries("acme", "app", request_id()) == []
    await store.close()


def test_a_database_of_which_the_second_connection_fails_is_not_kept_open(tmp_path: Path) -> None:
    path, made = tmp_path / DATABASE, itertools.count(1)

    def connect(file: str, **options: Any) -> sqlite3.Connection:
        if next(made) == 2:
            raise sqlite3.OperationalError("unable to open database file")
        return sqlite3.connect(file, **options)

    database = Database(path, connect=connect)
    # What was raised holds on to the frames, so that nothing is closed for want of a reference.
    with pytest.raises(sqlite3.OperationalError) as raised:
        database.open()
    assert str(raised.value) == "unable to open database file"
    assert not [held for held in Path("/proc/self/fd").iterdir() if held.is_symlink() and held.resolve() == path]
    database.open()
    database.close()


async def test_a_value_that_no_column_takes_fails_its_verb_alone(tmp_path: Path) -> None:
    disk = Disk()
    store = open_store(tmp_path, clock=SetClock(), connect=disk.connect)
    good, bad = entry(request_id()), msgspec.structs.replace(entry(request_id()), application=object())
    opened = disk.opened
    kept = asyncio.create_task(store.begin([good], None))
    with pytest.raises((sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        await store.begin([bad], None)
    assert await kept == Reserved()
    assert await store.begin([entry(request_id())], None) == Reserved()
    assert disk.opened == opened, "the database is well"
    await store.close()


@pytest.mark.parametrize("trouble", ["a failed commit", "a held lock"])
async def test_a_note_outlives_the_verbs_that_it_was_rolled_back_with(tmp_path: Path, trouble: str) -> None:
    disk = Disk()
    store = open_store(tmp_path, clock=SetClock(), connect=disk.connect)
    other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    noted = request_id()
    if trouble == "a failed commit":
        disk.fail_before = 1
    else:
        disk.rolled_back = lambda: other.execute("BEGIN IMMEDIATE")
    store.note([entry(noted, "outcome")])
    kept = asyncio.create_task(store.begin([entry(request_id())], None))  # type: ignore[arg-type]
    bad = msgspec.structs.replace(entry(request_id()), application=object())
    broken = asyncio.create_task(store.begin([bad], None))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        await kept
    with pytest.raises((StoreUnavailable, sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        await broken
    other.close()
    await until_up(store)
    await store.drain()
    assert len(await store.find_entries("acme", "app", noted)) == 1
    await store.close()


async def test_while_the_disk_stays_broken_verbs_fail_at_once(tmp_path: Path) -> None:
    disk = Disk()
    store = open_store(tmp_path, clock=SetClock(), connect=disk.connect)
    await store.begin([entry(request_id())], None)
    broken = disk.connect

    def refuse(path: str, **options: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    disk.connect = refuse  # type: ignore[method-assign]
    store._database._connect = lambda path, **options: disk.connect(path, **options)
    disk.fail_before = 1
    with pytest.raises(StoreUnavailable):
        await store.begin([entry(request_id())], None)
    await asyncio.sleep(0.1)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.begin([entry(request_id())], None)
    with pytest.raises(StoreUnavailable):
        await store.find_key("0" * 64)
    assert time.monotonic() - started < 1
    disk.connect = broken  # type: ignore[method-assign]
    await until_up(store)
    await store.close()


FULL = """
import asyncio, json, resource, signal, sys
from pathlib import Path
from terraflow.ports.store import Entry, StoreUnavailable
from terraflow.storage.sqlite.store import open_store
from tests.storage.makers import SetClock

async def main():
    store = open_store(Path(sys.argv[1]), clock=SetClock())
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = 400_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    kept = failed = 0
    for number in range(60):
        name = f"req_{number:032x}"
        try:
            await store.begin([Entry("acme", "app", name, "intent", b"x" * 20_000)], None)
            kept += 1
        except StoreUnavailable:
            failed += 1
            await asyncio.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for _ in range(300):
        try:
            await store.begin([Entry("acme", "app", "after", "intent", b"x")], None)
            break
        except StoreUnavailable:
            await asyncio.sleep(0.01)
    leaves = await store.find_entries("acme", "app", "after")
    await store.close()
    print(json.dumps({"kept": kept, "failed": failed, "after": [leaf.index for leaf in leaves]}))

asyncio.run(main())
"""


def test_a_full_disk_fails_verbs_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """The kernel refuses to let a file grow (RLIMIT_FSIZE), as a full disk would."""
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["kept"] >= 5 and told["failed"] >= 5
    with sqlite3.connect(tmp_path / DATABASE) as raw:
        count, last = raw.execute("SELECT count(*), max(position) & 0xFFFFFFFFFF FROM leaf").fetchone()
    raw.close()
    assert count == last + 1 and count >= told["kept"] + 1
    assert told["after"] == [last]


async def test_another_process_holding_the_write_lock_blocks_neither_the_loop_nor_the_verb_for_ever(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path, clock=SetClock())
    other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    verb = asyncio.create_task(store.begin([entry(a := request_id())], None))  # type: ignore[arg-type]
    longest = 0.0
    while not verb.done():
        before = time.monotonic()
        await asyncio.sleep(0)
        longest = max(longest, time.monotonic() - before)
        if time.monotonic() - began > 0.1 and other.in_transaction:
            other.execute("ROLLBACK")
    assert await verb == Reserved()
    assert longest < 1
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.begin([entry(request_id())], None)
    assert 0.15 < time.monotonic() - began < 5
    store.note([entry(request_id(), "outcome")])
    began = time.monotonic()
    for _ in range(10):
        with pytest.raises(StoreUnavailable):
            await store.finish([entry(a, "outcome")])
    assert time.monotonic() - began < 1.5, "the same lock is waited for once"
    other.execute("ROLLBACK")
    other.close()
    await store.finish([entry(a, "outcome")])
    await store.close()


async def test_one_plane_a_folder_and_tools_beside_it(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    assert plane_runs(tmp_path)
    with pytest.raises(FolderInUse):
        open_store(tmp_path, clock=SetClock())
    with open_tools(tmp_path) as tools:
        assert tools.activate_bundle(b"envelope", 1, NOW)
    assert await store.active_bundle() == b"envelope"
    await store.close()
    assert not plane_runs(tmp_path)
    again = open_store(tmp_path, clock=SetClock())
    await again.close()
    await again.close()


async def test_an_erasure_waits_for_a_reader_in_another_process_without_holding_requests_up(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    a = request_id()
    await store.finish([entry(a, "outcome")], (), answer(a, b"PLAINTEXT-CANARY" * 500))
    reader = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM leaf").fetchall()
    assert (await store.erase(request_id=a)).answers == 1
    started = time.monotonic()
    await store.begin([entry(request_id())], None)
    assert time.monotonic() - started < 2
    assert files_with(tmp_path, b"PLAINTEXT-CANARY")
    reader.execute("COMMIT")
    reader.close()
    for _ in range(300):
        if not files_with(tmp_path, b"PLAINTEXT-CANARY"):
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail("what was erased stayed in a file although nobody reads any more")
    await store.close()


async def test_a_tool_erases_beside_a_plane(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    a = request_id()
    await store.finish([entry(a, "outcome")], (), answer(a, b"PLAINTEXT-CANARY" * 500))
    with open_tools(tmp_path) as tools:
        assert tools.erase(now=NOW, request_id=a) == (Erased(1), True)
    assert files_with(tmp_path, b"PLAINTEXT-CANARY") == []
    await store.begin([entry(request_id())], None)
    await store.close()


async def test_a_tool_of_another_version_leaves_the_schema_to_the_running_plane(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    raw = sqlite3.connect(tmp_path / DATABASE)
    raw.execute("PRAGMA user_version = 0")
    with pytest.raises(DatabaseUnusable, match="another version"):
        open_tools(tmp_path)
    raw.close()
    await store.close()


async def test_a_closed_store_takes_nothing_and_stays_closed(tmp_path: Path) -> None:
    disk = Disk()
    store = open_store(tmp_path, clock=SetClock(), connect=disk.connect)
    noted = request_id()
    store.note([entry(noted, "outcome")])
    await store.close()
    opened = disk.opened
    for verb in (store.begin([entry(request_id())], None), store.erase(), store.find_key("0" * 64)):
        with pytest.raises(StoreUnavailable):
            await verb
    with pytest.raises(StoreUnavailable):
        store.note([entry(request_id())])
    await asyncio.sleep(0.3)
    assert disk.opened == opened
    again = open_store(tmp_path, clock=SetClock())
    assert len(await again.find_entries("acme", "app", noted)) == 1
    await again.close()


async def test_what_waits_has_a_bound(tmp_path: Path) -> None:
    store = open_store(None, clock=SetClock())
    for _ in range(NOTES_MAX):
        store.note([entry("req_1", "outcome")])
    with pytest.raises(StoreUnavailable):
        store.note([entry("req_1", "outcome")])
    await store.close()


async def test_a_key_whose_request_never_began_is_free_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    began, never = request_id(), request_id()
    await store.claim(claim(began, key="1" * 64), NOW)
    await store.begin([entry(began)], None)
    await store.claim(claim(never, key="2" * 64), NOW)
    await store.close()
    store = open_store(tmp_path, clock=SetClock())
    assert await store.claim(claim(request_id(), key="1" * 64), NOW) == Held(began)
    assert await store.claim(claim(request_id(), key="2" * 64), NOW) == Claimed()
    await store.close()


async def test_money_that_another_connection_changed_is_read_again(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    a, b = request_id(), request_id()
    await store.begin([entry(a)], reservation(a, 60, line(100)))
    with sqlite3.connect(tmp_path / DATABASE) as other:
        other.execute("UPDATE counter SET posted = 40")
    other.close()
    assert await store.reserve(reservation(b, 1, line(100))) != Reserved()
    await store.close()


async def test_a_changed_row_another_key_or_a_missing_key_count_as_no_answer(tmp_path: Path) -> None:
    key, clock = b"k" * 32, SetClock()
    requests = [request_id() for _ in range(6)]
    store = open_store(tmp_path, clock=clock, answer_key=key)
    for request in requests:
        await store.finish([entry(request, "outcome")], (), answer(request, cache_key=request))
    await store.close()
    with sqlite3.connect(tmp_path / DATABASE) as raw:
        rows = raw.execute("SELECT data FROM answer").fetchall()
        assert not any(b"the answer" in data for (data,) in rows)
        changes = (
            ("UPDATE answer SET data = CAST(data || x'00' AS BLOB) WHERE request_id = ?", 0),
            ("UPDATE answer SET data = x'00' WHERE request_id = ?", 1),
            ("UPDATE answer SET expires_at = expires_at + 1 WHERE request_id = ?", 2),
            ("UPDATE answer SET data = CAST('the answer' AS BLOB), sealed = 0 WHERE request_id = ?", 3),
            ("UPDATE answer SET cache_key = 'moved' WHERE request_id = ?", 4),
        )
        for statement, number in changes:
            raw.execute(statement, (requests[number],))
    raw.close()
    store = open_store(tmp_path, clock=clock, answer_key=key)
    found = [await store.find_answer("acme", r, NOW) for r in (*requests[:4], "moved", requests[5])]
    assert [f is not None for f in found] == [False] * 5 + [True]
    await store.close()
    for other_key in (None, b"o" * 32):
        store = open_store(tmp_path, clock=clock, answer_key=other_key)
        assert await store.find_answer("acme", requests[5], NOW) is None
        await store.close()


async def test_a_file_that_is_not_ours_or_newer_or_damaged_is_refused(tmp_path: Path) -> None:
    foreign, newer, damaged, text = (tmp_path / name for name in ("foreign", "newer", "damaged", "text"))
    for folder in (foreign, newer, damaged, text):
        folder.mkdir()
    with sqlite3.connect(foreign / DATABASE) as raw:
        raw.execute("CREATE TABLE other (a)")
    raw.close()
    for folder, statement in ((newer, "PRAGMA user_version = 999"), (damaged, "UPDATE leaf SET data = x'00'")):
        store = open_store(folder, clock=SetClock())
        await store.begin([entry(request_id())], None)
        await store.close()
        with sqlite3.connect(folder / DATABASE) as raw:
            raw.execute(statement)
        raw.close()
    (text / DATABASE).write_text("not a database, but long enough to be looked at as one\n" * 20)
    for folder in (foreign, newer, damaged, text):
        with pytest.raises(DatabaseUnusable):
            open_store(folder, clock=SetClock())
    assert not any(map(plane_runs, (foreign, newer, damaged, text)))


@pytest.mark.parametrize("how", ["request", "before", "expired"])
async def test_what_is_erased_is_in_no_file(tmp_path: Path, how: str) -> None:
    clock = SetClock()
    store = open_store(tmp_path, clock=clock)
    secret = b"PLAINTEXT-CANARY-" * 2_000
    a = request_id()
    await store.finish([entry(a, "outcome")], (), answer(a, secret))
    for _ in range(30):
        b = request_id()
        await store.finish([entry(b, "outcome")], (), answer(b, b"other" * 200))
    assert files_with(tmp_path, b"PLAINTEXT-CANARY")
    if how == "request":
        await store.erase(request_id=a)
    elif how == "before":
        clock.time += 10
        await store.erase(before=clock.now())
    else:
        clock.time = answer(a).expires_at
        await store.erase()
    assert files_with(tmp_path, b"PLAINTEXT-CANARY") == []
    await store.close()
