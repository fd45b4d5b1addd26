"""Signed notes: text that a named Ed25519 key vouches for. C2SP signed-note, Go's golang.org/x/mod/sumdb/note.

1. A note is its text, ending in a newline, an empty line, and one line a signature: an em dash, the key's name,
   and base64 of the key's 4-byte hash and the signature.
2. A verifier key is written `<name>+<hash>+<base64 of 0x01 and the key>`, the hash in eight hexadecimal digits.
3. Opening accepts what signing writes: one signature, by the key asked for, in its one encoding.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ED25519 = b"\x01"
_NAME = re.compile(r"[^\s+]+")


class NoteInvalid(ValueError):
    """Not a note that the given key signed."""


def verifier_key(name: str, key: Ed25519PublicKey) -> str:
    """The key as text (rule 2), to be given to whoever verifies."""
    public = ED25519 + key.public_bytes_raw()
    return f"{name}+{_key_hash(name, key).hex()}+{base64.b64encode(public).decode()}"


def sign_note(text: str, name: str, key: Ed25519PrivateKey) -> bytes:
    """The note of `text`, which ends in a newline, signed by the key under its name."""
    if not text.endswith("\n") or _NAME.fullmatch(name) is None:
        raise ValueError("a note's text ends in a newline, and a key's name has neither space nor plus")
    signature = key.sign(text.encode())
    return f"{text}\n{_signature_line(name, key.public_key(), signature)}".encode()


def open_note(raw: bytes, name: str, key: Ed25519PublicKey) -> str:
    """The text of a note that the key signed under its name; raises NoteInvalid for anything else."""
    body, blank, line = raw.rpartition(b"\n\n")
    text = body + b"\n"
    try:
        signature = base64.b64decode(line.split(b" ")[-1].strip())[4:]
        key.verify(signature, text)
        canonical_line = _signature_line(name, key, signature).encode()
    except (InvalidSignature, ValueError):
        raise NoteInvalid("the note's signature does not match") from None
    if not blank or line != canonical_line:
        raise NoteInvalid("the note's signature line is not by this key, or not in its canonical encoding")
    return text.decode()


def names_key(raw: bytes, name: str, key: Ed25519PublicKey) -> bool:
    """Whether a note claims to be signed by this key, well or not; also true of one whose claim cannot be read. It
    tells another key from a note that was damaged."""
    try:
        claimed = base64.b64decode(raw.split(b" ")[-1].strip(), validate=True)
    except ValueError:
        return True
    return len(claimed) < 4 or claimed[:4] == _key_hash(name, key)


def _signature_line(name: str, key: Ed25519PublicKey, signature: bytes) -> str:
    return f"— {name} {base64.b64encode(_key_hash(name, key) + signature).decode()}\n"


def _key_hash(name: str, key: Ed25519PublicKey) -> bytes:
    return sha256(name.encode() + b"\n" + ED25519 + key.public_bytes_raw()).digest()[:4]
