"""Opening what settings name: files, keys, the data folder.

Whatever is wrong with one of them becomes one line that names the setting and the file (`CannotStart`, or KeyUnusable
for a key): no traceback, and nothing half-made is left open.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import re
import sqlite3
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from terraflow.app.keys import KeyUnusable, public_path, read_public_key
from terraflow.app.settings import Settings
from terraflow.core.signature import keyring
from terraflow.ports.ledger import Ledger
from terraflow.ports.runtime import Clock
from terraflow.ports.store import StoreUnavailable
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.schema import DatabaseUnusable
from terraflow.storage.sqlite.store import SqliteStore, open_store
from terraflow.storage.sqlite.tools import open_tools

if TYPE_CHECKING:
    from terraflow.app.hints_settings import HintsSettings

log = logging.getLogger("terraflow.opening")

OTHERS = 0o007
_TOKEN = re.compile(rb"[\x21-\x7e]{16,512}")


class CannotStart(Exception):
    """What a setting names cannot be used; the message says which, what is wrong, and is one line."""


@contextlib.contextmanager
def naming(setting: str, path: Path) -> Iterator[None]:
    """Tell errors of what is done inside under the setting's name. Raises CannotStart, KeyUnusable."""
    try:
        yield
    except KeyUnusable as error:
        raise KeyUnusable(f"{setting}: {error}") from None
    except OSError as error:
        raise CannotStart(f"{setting}: cannot use {error.filename or path}: {error.strerror or error}") from None
    except DatabaseUnusable as error:
        raise CannotStart(f"{setting}: {_about(path, str(error))}") from None
    except sqlite3.Error as error:
        raise CannotStart(f"{setting}: cannot open {path}: {error}") from None
    except StoreUnavailable as error:
        cause = str(error.__cause__ or "")
        why = str(error) if not cause or cause in str(error) else f"{error} ({cause})"
        raise CannotStart(f"{setting}: {_about(path, why)}") from None


def _about(path: Path, said: str) -> str:
    return said if str(path) in said or str(path.parent) in said else f"{path}: {said}"


def open_data_folder(settings: Settings, clock: Clock) -> SqliteStore:
    """The plane's store. Raises CannotStart, KeyUnusable, FolderInUse."""
    answer_key = read_answer_key(settings)
    folder = Path(settings.data_dir)
    with naming("data_dir", folder / DATABASE):
        return open_store(folder, clock=clock, answer_key=answer_key, answers_bytes_max=settings.answers_bytes_max)


@contextlib.contextmanager
def open_ledger(settings: Settings) -> Iterator[Ledger]:
    """A data folder's log, beside a running plane or without one.

    Raises DatabaseMissing, DatabaseUnusable, StoreUnavailable.
    """
    with open_tools(Path(settings.data_dir)) as tools:
        yield tools.ledger


def bundle_keys(settings: Settings) -> Mapping[str, Ed25519PublicKey]:
    """The keys that may sign bundles. Raises KeyUnusable."""
    named = [Path(name) for name in settings.bundle_keys]
    own = public_path(Path(settings.data_dir) / "keys" / "bundle.pem")
    with naming("bundle_keys", own):
        return keyring(read_public_key(path) for path in named or [own] if named or path.exists())


def marks_folder(settings: Settings) -> Path:
    """Where the high-water marks are."""
    return Path(settings.high_water_dir or Path(settings.data_dir) / "marks")


def open_marks(settings: Settings) -> Path:
    """The folder of the marks, made if absent, that can be read and written. Raises CannotStart.

    It is looked at before the marks in it are: a folder that cannot be listed would pass for one without marks.
    """
    folder = marks_folder(settings)
    with naming("high_water_dir", folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for _ in folder.iterdir():
            break
        tried = folder / ".writable"
        tried.write_bytes(b"")
        tried.unlink()
    return folder


def read_answer_key(settings: Settings) -> bytes | None:
    """The key that encrypts stored answers. Raises KeyUnusable."""
    if settings.answer_key_file is None:
        return None
    path = Path(settings.answer_key_file)
    try:
        key = base64.b64decode(path.read_text("ascii").strip(), validate=True)
    except OSError as error:
        raise KeyUnusable(f"answer_key_file: cannot read {path}: {error.strerror}") from None
    except (binascii.Error, UnicodeDecodeError):
        raise KeyUnusable(f"answer_key_file: {path} is not base64") from None
    if len(key) != 32:
        raise KeyUnusable(f"answer_key_file: {path} must hold 32 bytes in base64")
    warn_if_open("answer_key_file", path)
    return key


def warn_if_open(setting: str, path: Path) -> None:
    """Say so when everybody on the machine may read or write a secret."""
    if path.stat().st_mode & OTHERS:
        log.warning("%s: everybody on this machine may read %s: chmod 600 it", setting, path)


def read_metrics_token(settings: Settings) -> bytes | None:
    """The token of those who may scrape, None when there is none. Raises CannotStart, KeyUnusable."""
    if settings.metrics_token_file is None:
        return None
    return read_token("metrics_token_file", Path(settings.metrics_token_file))


def read_token(setting: str, path: Path) -> bytes:
    """The bearer token that we ask callers for. Raises CannotStart, KeyUnusable."""
    with naming(setting, path):
        token = path.read_bytes().strip()
        warn_if_open(setting, path)
    if _TOKEN.fullmatch(token) is None:
        raise KeyUnusable(f"{setting}: {path} must hold 16 to 512 printable characters without spaces")
    return token


def check_tls(settings: Settings | HintsSettings) -> None:
    """Whether the TLS files can be served with, before anything listens. Raises CannotStart.

    OpenSSL would ask a terminal for the passphrase of an encrypted key, and says of most faults only "PEM lib".
    """
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return
    cert, key = Path(settings.tls_cert_file), Path(settings.tls_key_file)
    with naming("tls_cert_file", cert):
        chain = cert.read_bytes()
    with naming("tls_key_file", key):
        private = key.read_bytes()
    try:
        leaf = x509.load_pem_x509_certificates(chain)[0]
    except ValueError:
        raise CannotStart(f"tls_cert_file: {cert} holds no PEM certificate") from None
    try:
        loaded = serialization.load_pem_private_key(private, password=None)
    except TypeError:
        raise CannotStart(f"tls_key_file: {key} is encrypted: name an unencrypted one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise CannotStart(f"tls_key_file: {key} holds no PEM private key") from None
    if loaded.public_key() != leaf.public_key():
        raise CannotStart(f"tls_key_file: {key} is not the key of the first certificate in {cert} (tls_cert_file)")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        raise CannotStart(f"tls_cert_file: {cert} cannot be served with: {error.reason}") from None
    warn_if_open("tls_key_file", key)
