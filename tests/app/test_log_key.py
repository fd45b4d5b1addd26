"""The log key: made once for a folder without history, and demanded of every folder that has one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from terraflow.app.keys import KeyUnusable, new_key, read_private_key
from terraflow.app.log_key import open_log_key
from terraflow.app.opening import open_ledger
from terraflow.app.settings import Settings
from terraflow.evidence.log import Integrator
from terraflow.storage.sqlite.store import open_store
from terraflow.storage.sqlite.tools import open_tools
from tests.storage.makers import SetClock, entry, request_id


def opened(settings: Settings) -> Ed25519PrivateKey:
    with open_ledger(settings) as ledger:
        return open_log_key(settings, ledger)


def signed_folder(folder: Path) -> Settings:
    """A data folder with one signed record."""
    settings = Settings(data_dir=str(folder))
    open_tools(folder, make=True).close()
    key = opened(settings)

    async def sign() -> None:
        store = open_store(folder, clock=SetClock())
        await store.finish([entry(request_id())])
        done = await asyncio.to_thread(Integrator(store.ledger, key).step, "acme")
        assert done is not None
        await store.close()

    asyncio.run(sign())
    return settings


def test_a_folder_without_any_checkpoint_gets_a_key_once(tmp_path: Path) -> None:
    open_tools(tmp_path, make=True).close()
    settings = Settings(data_dir=str(tmp_path))
    made = opened(settings)
    assert opened(settings).private_bytes_raw() == made.private_bytes_raw()
    assert (tmp_path / "keys" / "log.pub.pem").exists()


def test_a_missing_key_of_a_signed_log_is_never_replaced(tmp_path: Path) -> None:
    settings = signed_folder(tmp_path)
    shutil.rmtree(tmp_path / "keys")
    with pytest.raises(KeyUnusable, match=r"log\.pem is missing, and this data folder's logs were signed with it: put"):
        opened(settings)
    assert not (tmp_path / "keys").exists()


def test_marks_alone_bind_a_folder_to_its_key(tmp_path: Path) -> None:
    open_tools(tmp_path / "data", make=True).close()
    (tmp_path / "marks").mkdir()
    (tmp_path / "marks" / "acme.checkpoint").write_bytes(b"signed")
    with pytest.raises(KeyUnusable, match=r"the marks in .* were signed with it"):
        opened(Settings(data_dir=str(tmp_path / "data"), high_water_dir=str(tmp_path / "marks")))


@pytest.mark.parametrize("setting", [None, "log_key_file"])
def test_another_key_than_the_one_that_signed_is_refused(tmp_path: Path, setting: str | None) -> None:
    settings = signed_folder(tmp_path / "data")
    other = tmp_path / "data" / "keys" / "log.pem"
    if setting is None:
        shutil.rmtree(tmp_path / "data" / "keys")
    else:
        other = tmp_path / "other.pem"
        settings = Settings(data_dir=settings.data_dir, log_key_file=str(other))
    new_key(other)
    with pytest.raises(KeyUnusable, match=rf"{other} is not the key that signed .* \(tenant acme\)"):
        opened(settings)


def test_a_public_half_without_its_private_one_is_told(tmp_path: Path) -> None:
    settings = signed_folder(tmp_path)
    (tmp_path / "keys" / "log.pem").unlink()
    with pytest.raises(KeyUnusable, match="were signed with it"):
        opened(settings)
    open_tools(tmp_path / "new", make=True).close()
    (tmp_path / "new" / "keys").mkdir()
    shutil.copy(tmp_path / "keys" / "log.pub.pem", tmp_path / "new" / "keys")
    with pytest.raises(KeyUnusable, match=r"its public half .*log\.pub\.pem is there"):
        opened(Settings(data_dir=str(tmp_path / "new")))
    assert not (tmp_path / "new" / "keys" / "log.pem").exists()


def test_a_named_key_that_is_not_there_is_never_made(tmp_path: Path) -> None:
    open_tools(tmp_path / "data", make=True).close()
    with pytest.raises(KeyUnusable, match=r"log_key_file: cannot read the key .*none\.pem: No such file"):
        opened(Settings(data_dir=str(tmp_path / "data"), log_key_file=str(tmp_path / "none.pem")))


def test_a_damaged_checkpoint_is_no_matter_of_the_key(tmp_path: Path) -> None:
    settings = signed_folder(tmp_path)
    with open_tools(tmp_path) as tools:
        tools.transact(lambda write: write("drop_checkpoint", (1, 1)))
        note = b"terraflow.acme/evidence\n1\nAAAA\n\n\xe2\x80\x94 terraflow.acme/evidence !!!!\n"
        tools.transact(lambda write: write("add_checkpoint", (1, 1, note)))
    assert opened(settings).private_bytes_raw() == read_private_key(tmp_path / "keys" / "log.pem").private_bytes_raw()


def test_half_a_pair_is_never_written(tmp_path: Path) -> None:
    (tmp_path / "bundle.pub.pem").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        new_key(tmp_path / "bundle.pem")
    assert not (tmp_path / "bundle.pem").exists()


def test_a_key_that_everybody_may_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = signed_folder(tmp_path)
    opened(settings)
    assert caplog.messages == []
    (tmp_path / "keys" / "log.pem").chmod(0o644)
    opened(settings)
    assert f"everybody on this machine may read {tmp_path / 'keys' / 'log.pem'}" in caplog.text
