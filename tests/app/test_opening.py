"""What an operator gets wrong at a start: one line that names the setting and the file, and nothing left open."""

from __future__ import annotations

import base64
import datetime
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from terraflow.app.keys import KeyUnusable
from terraflow.app.opening import CannotStart, check_tls
from terraflow.app.runtime import SystemClock
from terraflow.app.settings import Settings
from terraflow.app.wiring import start
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.store import open_store


def pair(folder: Path, name: str, *, passphrase: bytes | None = None) -> tuple[Path, Path]:
    """A self-signed certificate and its key, encrypted if asked."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    certificate, private = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    sealed: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        sealed = serialization.BestAvailableEncryption(passphrase)
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, sealed))
    private.chmod(0o600)
    return certificate, private


def tls(cert: Path, key: Path) -> Settings:
    return Settings(tls_cert_file=str(cert), tls_key_file=str(key))


def test_tls_files_that_belong_together_are_served_with(tmp_path: Path) -> None:
    check_tls(tls(*pair(tmp_path, "good")))
    check_tls(Settings())


def test_tls_files_that_cannot_be_served_with_say_which_and_why(tmp_path: Path) -> None:
    cert, key = pair(tmp_path, "good")
    _, others = pair(tmp_path, "other")
    _, sealed = pair(tmp_path, "sealed", passphrase=b"secret")
    none = tmp_path / "none.pem"
    text = tmp_path / "text.pem"
    text.write_text("no PEM at all")
    for settings, said in (
        (tls(none, key), f"tls_cert_file: cannot use {none}: No such file or directory"),
        (tls(cert, none), f"tls_key_file: cannot use {none}: No such file or directory"),
        (tls(text, key), f"tls_cert_file: {text} holds no PEM certificate"),
        (tls(key, key), f"tls_cert_file: {key} holds no PEM certificate"),
        (tls(cert, text), f"tls_key_file: {text} holds no PEM private key"),
        (tls(cert, cert), f"tls_key_file: {cert} holds no PEM private key"),
        (tls(cert, others), f"tls_key_file: {others} is not the key of the first certificate in {cert}"),
        (tls(cert, sealed), f"tls_key_file: {sealed} is encrypted"),
        (tls(tmp_path, key), f"tls_cert_file: cannot use {tmp_path}: Is a directory"),
    ):
        with pytest.raises(CannotStart) as refused:
            check_tls(settings)
        assert str(refused.value).startswith(said), said


async def test_a_data_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    foreign = tmp_path / "foreign" / DATABASE
    foreign.parent.mkdir()
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    garbage = tmp_path / "garbage" / DATABASE
    garbage.parent.mkdir()
    garbage.write_bytes(b"no database " * 1000)
    folder = tmp_path / "folder" / DATABASE
    folder.mkdir(parents=True)
    for data, said in (
        (file, f"data_dir: cannot use {file}: "),
        (file / "below", f"data_dir: cannot use {file / 'below'}: Not a directory"),
        (Path("/proc/nowhere"), "data_dir: cannot use /proc/nowhere: "),
        (foreign.parent, f"data_dir: {foreign}: the file is a database of another program"),
        (garbage.parent, f"data_dir: {garbage}: the file is not a database, or is damaged"),
        (folder.parent, f"data_dir: cannot open {folder}: unable to open database file"),
    ):
        with pytest.raises(CannotStart) as refused:
            await start(Settings(data_dir=str(data)))
        assert str(refused.value).startswith(said)


async def test_keys_and_marks_that_settings_name_are_told_by_their_setting(tmp_path: Path) -> None:
    none, file = tmp_path / "none", tmp_path / "file"
    file.write_text("x")
    data = tmp_path / "data"
    for settings, refusal, said in (
        ({"bundle_keys": (str(none),)}, KeyUnusable, f"bundle_keys: cannot read the key {none}: No such file"),
        ({"bundle_keys": (str(file),)}, KeyUnusable, f"bundle_keys: {file} is not a PEM public key"),
        ({"log_key_file": str(none)}, KeyUnusable, f"log_key_file: cannot read the key {none}"),
        ({"answer_key_file": str(none)}, KeyUnusable, f"answer_key_file: cannot read {none}"),
        ({"answer_key_file": str(file)}, KeyUnusable, f"answer_key_file: {file} is not base64"),
        ({"high_water_dir": str(file)}, CannotStart, f"high_water_dir: cannot use {file}: "),
    ):
        with pytest.raises(refusal) as refused:
            await start(Settings(data_dir=str(data), **settings))
        assert str(refused.value).startswith(said)
        store = open_store(data, clock=SystemClock())
        await store.close()


async def test_an_answer_key_that_everybody_may_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = tmp_path / "answer.key"
    key.write_bytes(base64.b64encode(os.urandom(32)))
    for mode, told in ((0o600, False), (0o644, True)):
        key.chmod(mode)
        parts = await start(Settings(data_dir=str(tmp_path / "data"), answer_key_file=str(key)))
        await parts.stop()
        assert (f"everybody on this machine may read {key}" in caplog.text) is told


def serve(*arguments: object, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a shell runs it, when it is expected to end."""
    program = [sys.executable, "-W", "always", "-c", "from terraflow.cli.main import main; main()"]
    return subprocess.run(
        [*program, *map(str, arguments)], capture_output=True, text=True, timeout=30, preexec_fn=before
    )


def full_disk() -> None:
    """No file of the process may grow above 16 KiB: a disk that is full while the schema is written."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384))


def test_a_start_that_fails_is_one_line_and_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    cert, _ = pair(tmp_path, "good")
    _, sealed = pair(tmp_path, "sealed", passphrase=b"secret")
    config = tmp_path / "tls.toml"
    config.write_text(f'tls_cert_file = "{cert}"\ntls_key_file = "{sealed}"\n')
    unsigned = tmp_path / "unsigned.toml"
    unsigned.write_text(f'bundle_keys = ["{tmp_path / "none.pem"}"]\n')
    for arguments, before, said in (
        (
            ("serve", "--data", tmp_path / "late", "--port", 0, "--config", unsigned),
            None,
            "terraflow serve: bundle_keys: ",
        ),
        (("serve", "--data", file), None, f"terraflow serve: data_dir: cannot use {file}"),
        (("demo", "--data", file), None, f"terraflow demo: data_dir: cannot use {file}"),
        (("serve", "--data", tmp_path / "d", "--config", config), None, "terraflow serve: tls_key_file: "),
        (("serve", "--data", tmp_path / "full"), full_disk, "terraflow serve: data_dir: "),
    ):
        done = serve(*arguments, before=before)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert done.stderr.startswith(said) and done.stderr.count("\n") == 1, done.stderr


def test_the_demo_leaves_another_planes_folder_alone(tmp_path: Path) -> None:
    from terraflow.app.demo import NoDemoFolder, make_workspace
    from terraflow.storage.sqlite.tools import open_tools

    open_tools(tmp_path, make=True).close()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NoDemoFolder, match="another plane's data folder"):
        make_workspace(Settings(data_dir=str(tmp_path)), bench=False)
    assert sorted(tmp_path.iterdir()) == before
