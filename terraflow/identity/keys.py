"""API keys: `tf_` and 43 characters of the URL-safe base64 alphabet, 256 random bits.

1. A key is shown once, when it is made; what is kept is the SHA-256 of its ASCII form. So many random bits need no
   slow hash: nobody can try them.
2. Looking a digest up in an index tells a clock nothing of use: the digest of a guess is not the guess.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

PREFIX = "tf_"
SECRET_BYTES = 32
ID_BYTES = 8


class NewKey(msgspec.Struct, frozen=True):
    """A key just made: `text` goes to its owner, `id` and `digest` are kept."""

    id: str
    text: str
    digest: str


def make_key(random_text: Callable[[int], str], random_hex: Callable[[int], str]) -> NewKey:
    """A new key from two sources of that many random bytes: `secrets.token_urlsafe` and `secrets.token_hex`."""
    text = PREFIX + random_text(SECRET_BYTES)
    return NewKey(id="key_" + random_hex(ID_BYTES), text=text, digest=key_digest(text.encode()))


def key_digest(key: bytes) -> str:
    """The SHA-256 of a key as it is sent, in lower-case hexadecimal."""
    return hashlib.sha256(key).hexdigest()
