"""Checkpoints: what a log claims its tree to be, signed. C2SP tlog-checkpoint.

1. The text is three lines: the origin, the number of leaves, and base64 of the root hash.
2. A tenant's log has the origin `terraflow.<tenant>/evidence`, which is also the name of the key that signs it, so
   that one key signs many logs and no checkpoint of one passes for another's.
"""

from __future__ import annotations

import base64
import re

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from terraflow.evidence.merkle import HASH_BYTES, Tree, root
from terraflow.evidence.note import NoteInvalid, open_note, sign_note, verifier_key

_TEXT = re.compile(r"(?P<origin>[^\n]+)\n(?P<size>0|[1-9][0-9]{0,18})\n(?P<root>[A-Za-z0-9+/]{43}=)\n")


class Checkpoint(msgspec.Struct, frozen=True):
    """A log's tree at one size."""

    origin: str
    size: int
    root: bytes


def origin(tenant: str) -> str:
    """The origin of a tenant's log."""
    return f"terraflow.{tenant}/evidence"


def log_key(tenant: str, key: Ed25519PublicKey) -> str:
    """The verifier key of a tenant's log, the text that `terraflow verify --key` takes."""
    return verifier_key(origin(tenant), key)


def sign_checkpoint(tenant: str, tree: Tree, key: Ed25519PrivateKey) -> bytes:
    """The signed note that states a tenant's tree."""
    name = origin(tenant)
    return sign_note(f"{name}\n{tree.size}\n{base64.b64encode(root(tree)).decode()}\n", name, key)


def open_checkpoint(raw: bytes, tenant: str, key: Ed25519PublicKey) -> Checkpoint:
    """The checkpoint that a tenant's signed note states; raises NoteInvalid for anything else."""
    name = origin(tenant)
    found = _TEXT.fullmatch(open_note(raw, name, key))
    if found is None or found["origin"] != name:
        raise NoteInvalid("the note is not a checkpoint of this log")
    digest = base64.b64decode(found["root"])
    if len(digest) != HASH_BYTES or base64.b64encode(digest).decode() != found["root"]:
        raise NoteInvalid("the checkpoint's root hash is not in its canonical encoding")
    return Checkpoint(name, int(found["size"]), digest)
