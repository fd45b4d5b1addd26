"""A watched folder: every change is put in force whole, and a bad one leaves what was."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from terraflow.hints.policy import folder as folder_module
from terraflow.hints.policy.folder import FolderUnreadable, PolicyFolder, read_folder
from terraflow.hints.policy.policies import Policies
from terraflow.hints.policy.problems import PoliciesRefused

WAIT_S = 10.0


def policy(namespace: str, tokens: int) -> str:
    return (
        "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\n"
        f"metadata: {{name: p, namespace: {namespace}}}\nspec: {{minimumPrefixTokens: {tokens}}}\n"
    )


def tokens(policies: Policies) -> dict[str, int]:
    return {namespace: policy.minimum_prefix_tokens for namespace, policy in policies.cache.items()}


def put(path: Path, text: str) -> None:
    """Writes a file as one should: it is there whole or not at all."""
    fresh = path.with_name(".fresh")
    fresh.write_text(text)
    fresh.rename(path)


class Told:
    """What a watch hands on, and a way to wait for it."""

    def __init__(self) -> None:
        self.adopted: list[Policies] = []

    def adopt(self, policies: Policies) -> None:
        self.adopted.append(policies)

    async def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, "did not come to hold"
            await asyncio.sleep(0.01)

    async def in_force(self, expected: dict[str, int]) -> None:
        await self.until(lambda: tokens(self.adopted[-1]) == expected)


@asynccontextmanager
async def watching(path: Path, look_every_s: float = 1.0) -> AsyncIterator[tuple[PolicyFolder, Told]]:
    told = Told()
    watched = PolicyFolder(path, told.adopt, look_every_s)
    told.adopted.append(watched.load())
    task = asyncio.create_task(watched.watch())
    await asyncio.sleep(0.1)
    try:
        yield watched, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def configmap(mount: Path, version: int, files: dict[str, str]) -> None:
    """Writes a version as the kubelet does: a fresh folder, then one rename of the link `..data`."""
    fresh = mount / f"..v{version}"
    fresh.mkdir(parents=True)
    for name, text in files.items():
        (fresh / name).write_text(text)
        if not (mount / name).is_symlink():
            (mount / name).symlink_to(Path("..data") / name)
    (mount / "..data_tmp").symlink_to(fresh.name)
    (mount / "..data_tmp").rename(mount / "..data")


def test_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(policy("a", 1))
    (tmp_path / "b.yml").write_text(policy("b", 2))
    (tmp_path / "replicas.yaml").write_text("replicas: {r: {x: y}}\n")
    for passed_over in (".c.yaml", "d.txt", "e.yaml~"):
        (tmp_path / passed_over).write_text("[")
    (tmp_path / "f.yaml").mkdir()
    found = read_folder(tmp_path)
    assert tokens(found) == {"a": 1, "b": 2}
    assert found.labels == {"r": {"x": "y"}}


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FolderUnreadable, match="is no folder"):
        read_folder(tmp_path / "absent")
    monkeypatch.setattr(folder_module, "FOLDER_BYTES_MAX", 10)
    (tmp_path / "a.yaml").write_text(policy("a", 1))
    with pytest.raises(PoliciesRefused, match="10 bytes"):
        read_folder(tmp_path)


def test_a_swapped_link_is_never_seen_half(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(6)]
    done = threading.Event()

    def swap() -> None:
        version = 1
        while not done.is_set() and version < 3_000:
            configmap(tmp_path, version, {f"{name}.yaml": policy(name, version) for name in names})
            version += 1
            done.wait(0.002)

    configmap(tmp_path, 0, {f"{name}.yaml": policy(name, 0) for name in names})
    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[int] = set()
    read = 0
    try:
        for _ in range(60):
            try:
                found = tokens(read_folder(tmp_path))
            except FolderUnreadable as gave_up:
                # On a busy machine every one of its tries may meet a swap: it says so, and keeps what it had.
                assert "changes faster" in str(gave_up)
                continue
            assert set(found) == set(names)
            assert len(set(found.values())) == 1
            seen |= set(found.values())
            read += 1
    finally:
        done.set()
        swapping.join()
    assert read > 10
    assert len(seen) > 1


async def test_changes_are_put_in_force(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", policy("a", 1))
    async with watching(tmp_path) as (_, told):
        put(tmp_path / "b.yaml", policy("b", 2))
        await told.in_force({"a": 1, "b": 2})
        (tmp_path / "a.yaml").unlink()
        await told.in_force({"b": 2})


async def test_a_bad_manifest_leaves_what_was_and_a_good_one_mends_it(tmp_path: Path) -> None:
    put(tmp_path / "a.yaml", policy("a", 1))
    async with watching(tmp_path) as (watched, told):
        put(tmp_path / "a.yaml", policy("a", -1))
        await told.until(lambda: bool(watched.problems))
        assert watched.problems == ("a.yaml:4: spec.minimumPrefixTokens expected `int` >= 0",)
        assert [tokens(policies) for policies in told.adopted] == [{"a": 1}]
        put(tmp_path / "a.yaml", policy("a", 3))
        await told.in_force({"a": 3})
        assert watched.problems == ()


async def test_a_configmap_is_swapped(tmp_path: Path) -> None:
    configmap(tmp_path, 0, {"a.yaml": policy("a", 0)})
    async with watching(tmp_path) as (_, told):
        for version in (1, 2):
            configmap(tmp_path, version, {"a.yaml": policy("a", version), "b.yaml": policy("b", version)})
            await told.in_force({"a": version, "b": version})
    assert [tokens(policies) for policies in told.adopted] == [{"a": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]


async def test_a_link_to_the_folder_is_swapped(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        (tmp_path / str(version)).mkdir()
        (tmp_path / str(version) / "a.yaml").write_text(policy("a", version))
    current = tmp_path / "current"
    current.symlink_to("1")
    async with watching(current, look_every_s=0.1) as (_, told):
        for version in ("2", "3"):
            (tmp_path / "next").symlink_to(version)
            os.replace(tmp_path / "next", current)
            await told.in_force({"a": int(version)})


async def test_a_folder_that_goes_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "policies"
    path.mkdir()
    put(path / "a.yaml", policy("a", 1))
    async with watching(path, look_every_s=0.1) as (watched, told):
        (path / "a.yaml").unlink()
        path.rmdir()
        await told.until(lambda: bool(watched.problems))
        path.mkdir()
        put(path / "a.yaml", policy("a", 2))
        await told.in_force({"a": 2})


async def test_a_folder_that_comes_back_just_as_it_was(tmp_path: Path) -> None:
    path, away = tmp_path / "policies", tmp_path / "away"
    path.mkdir()
    put(path / "a.yaml", policy("a", 1))
    async with watching(path, look_every_s=0.1) as (watched, told):
        path.rename(away)
        await told.until(lambda: bool(watched.problems))
        away.rename(path)
        await told.until(lambda: len(told.adopted) == 2)
        assert watched.problems == ()
        await told.in_force({"a": 1})


async def test_a_fault_ends_no_watch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a.yaml", policy("a", 1))
    told, faults = Told(), [LookupError("planted")]

    def adopt(policies: Policies) -> None:
        if faults:
            raise faults.pop()
        told.adopt(policies)

    watched = PolicyFolder(tmp_path, adopt, look_every_s=0.05)
    task = asyncio.create_task(watched.watch())
    await told.until(lambda: bool(told.adopted))
    assert tokens(told.adopted[0]) == {"a": 1}
    assert "planted" in caplog.text
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
