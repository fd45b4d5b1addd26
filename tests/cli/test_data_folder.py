"""`terraflow key`, `erase` and `backup` on a data folder: output, errors, exit codes, and what is left in files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from terraflow.cli.main import application
from terraflow.core.types import Instant
from terraflow.ports.batches import BatchStatus
from terraflow.ports.store import KeyHolder, Settlement
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.store import SqliteStore, open_store
from terraflow.storage.sqlite.tools import open_tools
from tests.harness.bundle import document, purpose, sim
from tests.harness.folder import DataFolder
from tests.storage.durability import Acknowledged, problems
from tests.storage.makers import HOUR, NOW, SetClock, answer, entry, files_with, line, request_id, reservation
from tests.storage.test_batches import file, opened


async def terraflow(*arguments: object, code: int = 0) -> Result:
    """Run a command in a thread, so that a store of the same test can go on."""
    asked = [str(argument) for argument in arguments]
    done = await asyncio.to_thread(lambda: CliRunner().invoke(application(asked), asked))
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


async def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await terraflow(*arguments, "--json", code=code)).stdout)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    open_tools(folder, make=True).close()
    return folder


async def fill(store: SqliteStore) -> list[str]:
    requests = [request_id() for _ in range(5)]
    for request in requests:
        await store.begin([entry(request)], reservation(request, 5, line(100)))
        ending = Settlement(f"{request}/1", 3)
        await store.finish([entry(request, "outcome")], [ending], answer(request, b"PLAINTEXT-CANARY " * 99))
    return requests


async def test_a_key_works_at_once_on_a_running_plane_and_only_its_digest_is_kept(data: Path) -> None:
    store = open_store(data, clock=SetClock())
    made = await as_json("key", "create", "--data", data, "--tenant", "acme", "--application", "app")
    digest = hashlib.sha256(made["api_key"].encode()).hexdigest()
    assert await store.find_key(digest) == KeyHolder("acme", "app", made["id"])
    listed = await as_json("key", "list", "--data", data, "--tenant", "acme")
    assert [(row["id"], row["application"]) for row in listed["keys"]] == [(made["id"], "app")]
    assert made["api_key"] not in json.dumps(listed)

    new = await as_json("key", "rotate", made["id"], "--data", data, "--tenant", "acme")
    assert await store.find_key(digest) is None
    assert await store.find_key(hashlib.sha256(new["api_key"].encode()).hexdigest()) is not None
    await terraflow("key", "revoke", new["id"], "--data", data)
    assert await store.find_key(hashlib.sha256(new["api_key"].encode()).hexdigest()) is None
    await store.close()
    assert files_with(data, made["api_key"].encode()) == []


async def test_a_printed_key_is_alone_on_standard_output(data: Path) -> None:
    done = await terraflow("key", "create", "--data", data, "--tenant", "acme", "--application", "app")
    assert done.stdout.startswith("tf_") and len(done.stdout) == 47
    assert "not shown again" in done.stderr


async def test_a_key_is_made_for_an_application_of_the_bundle_in_force(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    made = ("key", "create", "--data", folder.path, "--tenant")
    assert "no bundle is in force yet" in (await terraflow(*made, "acme", "--application", "typo")).stderr
    folder.activate(document(purpose("plain", sim("one")), purpose("theirs", sim("one"), tenant="umbra")))
    assert "note" not in (await terraflow(*made, "acme", "--application", "web")).stderr
    wrong = await terraflow(*made, "acme", "--application", "wed", code=1)
    assert "no application wed of tenant acme; its applications: web" in wrong.stderr
    wrong = await terraflow(*made, "acne", "--application", "web", code=1)
    assert "no tenant acne; its tenants: acme, umbra" in wrong.stderr
    listed = (await terraflow("key", "list", "--tenant", "acme", "--data", folder.path)).stdout.splitlines()
    assert listed[0].split() == ["KEY", "CREATED", "APPLICATION"]
    assert [row.split()[2] for row in listed[1:]] == ["typo", "web"]


async def test_keys_that_are_not_there_and_folders_that_are_none(data: Path, tmp_path: Path) -> None:
    made = await as_json("key", "create", "--data", data, "--tenant", "acme", "--application", "app")
    for verb in ("revoke", "rotate"):
        assert "no live key key_0;" in (await terraflow("key", verb, "key_0", "--data", data, code=1)).stderr
        other = await terraflow("key", verb, made["id"], "--tenant", "globex", "--data", data, code=1)
        assert f"no live key {made['id']} of tenant globex" in other.stderr
    revoked = await as_json("key", "revoke", made["id"], "--tenant", "acme", "--data", data)
    assert revoked == {"revoked": made["id"], "tenant": "acme", "application": "app"}
    assert "no live key" in (await terraflow("key", "revoke", made["id"], "--data", data, code=1)).stderr
    nothing = await terraflow("key", "list", "--tenant", "acme", "--data", tmp_path / "none", code=2)
    assert "no TerraFlow database" in nothing.stderr
    await terraflow("key", "create", "--tenant", "No!", "--application", "a", "--data", data, code=2)


async def test_erasing_beside_a_running_plane_leaves_nothing_in_any_file(data: Path) -> None:
    store = open_store(data, clock=SetClock())
    requests = await fill(store)
    assert await as_json("erase", "--request", requests[0], "--tenant", "globex", "--data", data) == {
        "answers": 0,
        "gone_from_files": True,
        "why": "this data folder has no record of a tenant globex",
    }
    assert (await as_json("erase", "--request", requests[0], "--data", data))["answers"] == 1
    assert (await as_json("erase", "--expired", "--data", data))["answers"] in (0, 4)
    await terraflow("erase", "--older-than", "0s", "--data", data)
    assert files_with(data, b"PLAINTEXT-CANARY") == []
    await store.close()


async def test_an_erasure_says_how_much_it_found_and_why_nothing(data: Path) -> None:
    store = open_store(data, clock=SetClock())
    requests = await fill(store)
    await store.finish([entry("req_other", tenant="globex")])

    async def erase(*arguments: str) -> str:
        return (await terraflow("erase", *arguments, "--data", data)).stdout.strip()

    assert await erase("--request", requests[0], "--tenant", "globex") == (
        f"0 answers erased: {requests[0]} is no request of tenant globex"
    )
    assert await erase("--request", requests[0]) == "1 answer erased"
    assert (await erase("--request", requests[0])).startswith(
        f"0 answers erased: no answer of {requests[0]} is stored; it was never kept"
    )
    assert await erase("--request", "req_0") == "0 answers erased: this data folder has no record of a request req_0"
    assert await erase("--expired", "--tenant", "nobody") == (
        "0 answers erased: this data folder has no record of a tenant nobody"
    )
    assert await erase("--older-than", "0s", "--tenant", "globex") == (
        "0 answers erased: tenant globex has none that is due"
    )
    assert await erase("--older-than", "0s") == "4 answers erased"
    assert await erase("--older-than", "0s") == "0 answers erased: none is due"
    await store.close()


@pytest.mark.parametrize(
    "arguments", [(), ("--expired", "--older-than", "1d"), ("--older-than", "1 day"), ("--older-than", "-1d")]
)
async def test_an_erasure_that_does_not_say_what_is_refused(data: Path, arguments: tuple[str, ...]) -> None:
    await terraflow("erase", *arguments, "--data", data, code=2)


async def test_a_backup_of_a_busy_plane_is_a_whole_folder_that_a_plane_opens(data: Path, tmp_path: Path) -> None:
    for folder, names in (("keys", ("log.pem", "log.pub.pem")), ("marks", ("acme.checkpoint",))):
        (data / folder).mkdir()
        for name in names:
            (data / folder / name).write_text(name)
    store = open_store(data, clock=SetClock())
    await fill(store)
    writing = asyncio.create_task(busy(store))
    made = await as_json("backup", "--data", data, "--out", tmp_path / "copy")
    writing.cancel()
    assert made["records"]["acme"] >= 10 and made["private_keys"] is False
    assert sorted(made["files"]) == ["keys/log.pub.pem", "marks/acme.checkpoint", DATABASE]
    copy = tmp_path / "copy"
    for name, digest in made["files"].items():
        assert hashlib.sha256((copy / name).read_bytes()).hexdigest() == digest
    assert sorted(path.name for path in copy.iterdir()) == ["backup.json", "keys", "marks", DATABASE]
    assert all(stat.S_IMODE((copy / name).stat().st_mode) & 0o077 == 0 for name in (DATABASE, "backup.json"))
    assert problems(copy, Acknowledged()) == []
    again = open_store(copy, clock=SetClock())
    assert again.ledger.size("acme") == made["records"]["acme"]
    await again.close()
    await store.close()


async def busy(store: SqliteStore) -> None:
    while True:
        request = request_id()
        await store.begin([entry(request)], None)
        await store.finish([entry(request, "outcome")])


async def test_a_backup_has_keys_and_answers_as_asked(data: Path, tmp_path: Path) -> None:
    (data / "keys").mkdir()
    (data / "keys" / "log.pem").write_text("private")
    store = open_store(data, clock=SetClock())
    await fill(store)
    with_keys = await as_json("backup", "--data", data, "--out", tmp_path / "a", "--with-keys")
    assert "keys/log.pem" in with_keys["files"]
    assert b"PLAINTEXT-CANARY" in (tmp_path / "a" / DATABASE).read_bytes()
    await terraflow("backup", "--data", data, "--out", tmp_path / "b", "--without-answers")
    assert b"PLAINTEXT-CANARY" not in (tmp_path / "b" / DATABASE).read_bytes()
    await store.close()


async def test_a_backup_without_answers_has_of_batches_what_has_yet_to_run(data: Path, tmp_path: Path) -> None:
    store = open_store(data, clock=SetClock())
    under_way = await opened(store, b"RAN-CANARY " * 99, b"yet to run")
    over = await opened(store, b"RAN-CANARY " * 99, name="batch_2", metadata=b"METADATA-CANARY")
    for made in (under_way, over):
        request = request_id()
        await store.batches.take_item(made, -1, request)
        line = b"RESULT-CANARY " * 99
        await store.batches.end_item(made, 0, request, completed=True, line=line, key="k", now=NOW)
    await store.batches.end_batch(over, BatchStatus.COMPLETED, NOW, Instant(NOW + HOUR))
    await store.batches.keep_file(file(size=30_000, name="NAME-CANARY"), b"FILE-CANARY " * 2_500, 10_000_000)
    await terraflow("backup", "--data", data, "--out", tmp_path / "with")
    kept = (b"RESULT-CANARY", b"METADATA-CANARY", b"FILE-CANARY", b"NAME-CANARY")
    assert all(files_with(tmp_path / "with", canary) for canary in kept)
    await terraflow("backup", "--data", data, "--out", tmp_path / "without", "--without-answers")
    await store.close()
    assert not any(files_with(tmp_path / "without", canary) for canary in (*kept, b"RAN-CANARY"))
    restored = open_store(tmp_path / "without", clock=SetClock())
    (still,) = await restored.batches.open_batches()
    assert [item.data for item in await restored.batches.queued_items(still, 9)] == [b"yet to run"]
    await restored.close()


async def test_a_backup_goes_into_an_empty_folder_from_one_that_has_a_database(data: Path, tmp_path: Path) -> None:
    assert "not empty" in (await terraflow("backup", "--data", data, "--out", data, code=2)).stderr
    await terraflow("backup", "--data", tmp_path / "none", "--out", tmp_path / "x", code=2)
    assert not (tmp_path / "x").exists()


async def test_a_damaged_database_gives_no_backup(data: Path, tmp_path: Path) -> None:
    store = open_store(data, clock=SetClock())
    await fill(store)
    await store.close()
    raw = bytearray((data / DATABASE).read_bytes())
    at = raw.find(b'{"kind":"intent"')
    raw[at + 2] ^= 1
    (data / DATABASE).write_bytes(raw)
    await terraflow("backup", "--data", data, "--out", tmp_path / "copy", code=1)
    assert not (tmp_path / "copy" / DATABASE).exists()
