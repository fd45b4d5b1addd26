"""The key that signs a data folder's logs.

1. A new one is made only for a folder without any checkpoint and any high-water mark. A folder that has one is bound
   to the key that signed it: without that key nothing starts, for a log continued under another key contradicts
   what auditors hold.
2. A key that is there must be the one that signed the checkpoints.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from terraflow.app.keys import KeyUnusable, new_key, public_path, read_private_key
from terraflow.app.opening import marks_folder, naming, warn_if_open
from terraflow.app.settings import Settings
from terraflow.evidence.checkpoint import origin
from terraflow.evidence.highwater import SUFFIX
from terraflow.evidence.note import names_key
from terraflow.ports.ledger import Ledger

_WHAT_TO_DO = "put the key back that signed them, from the backup of the keys, or begin a new data folder"


def log_key_path(settings: Settings) -> Path:
    """Where the key that signs checkpoints is."""
    return Path(settings.log_key_file or Path(settings.data_dir) / "keys" / "log.pem")


def open_log_key(settings: Settings, ledger: Ledger) -> Ed25519PrivateKey:
    """The key that signs checkpoints (rules 1 and 2). Raises KeyUnusable, CannotStart, StoreUnavailable."""
    path = log_key_path(settings)
    if settings.log_key_file is None and not path.exists():
        _require_unsigned(settings, path, ledger)
        with naming("log_key_file", path):
            return new_key(path)
    with naming("log_key_file", path):
        key = read_private_key(path)
        warn_if_open("log_key_file", path)
    require_signer(path, key.public_key(), ledger)
    return key


def require_signer(path: Path, key: Ed25519PublicKey, ledger: Ledger) -> None:
    """Raises KeyUnusable unless the newest checkpoint of every tenant names this key; `path` is for the message.
    Whether a signature holds is not asked here: a damaged checkpoint is no matter of the key."""
    for tenant in ledger.tenants():
        note = ledger.checkpoint(tenant)
        if note is not None and not names_key(note, origin(tenant), key):
            raise KeyUnusable(
                f"{path} is not the key that signed this data folder's logs (tenant {tenant}): {_WHAT_TO_DO}"
            )


def _require_unsigned(settings: Settings, path: Path, ledger: Ledger) -> None:
    public = public_path(path)
    if any(ledger.checkpoint(tenant) is not None for tenant in ledger.tenants()):
        raise KeyUnusable(f"{path} is missing, and this data folder's logs were signed with it: {_WHAT_TO_DO}")
    marks = marks_folder(settings)
    if any(marks.glob(f"*{SUFFIX}")):
        raise KeyUnusable(f"{path} is missing, and the marks in {marks} were signed with it: {_WHAT_TO_DO}")
    if public.exists():
        raise KeyUnusable(
            f"{path} is missing, and its public half {public} is there: put the private key back, or, if nobody was"
            " given the public one, move it away and a new pair is made"
        )
