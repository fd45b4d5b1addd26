"""The signing keys of a data folder: made once, readable by their owner only.

1. The log, the bundles and, later, releases are signed by separate keys.
2. A private key is a PKCS #8 PEM file of mode 0600; its public half stands beside it as `<name>.pub.pem`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class KeyUnusable(Exception):
    """A key file is missing or holds something else; the message names the file."""


def new_key(path: Path) -> Ed25519PrivateKey:
    """A new private key in `path`, and its public half beside it. Raises FileExistsError, never overwrites, and
    leaves no half behind."""
    if public_path(path).exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(public_path(path)))
    key = Ed25519PrivateKey.generate()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write_new(path, pem, 0o600)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_new(public_path(path), public, 0o644)
    return key


def public_path(path: Path) -> Path:
    """Where the public half of a private key's file is: `log.pem` has `log.pub.pem`."""
    return path.with_name(path.name.removesuffix(".pem") + ".pub.pem")


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 key of a PEM file. Raises KeyUnusable."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise KeyUnusable(f"cannot read the key {path}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise KeyUnusable(f"{path} is not an unencrypted PEM private key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"{path} is not an Ed25519 key")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """The Ed25519 public key of a PEM file. Raises KeyUnusable."""
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise KeyUnusable(f"cannot read the key {path}: {error.strerror}") from None
    except ValueError:
        raise KeyUnusable(f"{path} is not a PEM public key") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable(f"{path} is not an Ed25519 key")
    return key


def _write_new(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
