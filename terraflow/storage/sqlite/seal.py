"""Sealing what callers wrote and were answered, when a key is configured.

1. A sealed value is AES-256-GCM under a fresh random nonce of 96 bits, which stands before it; what the row says of it
   is associated data, so that it cannot be moved to another row.
2. What does not open (another key, a changed row, an unsealed value although there is a key) counts as not stored.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
KEY_BYTES = 32


class Seal:
    """`key` is 32 bytes, or None to keep values as they are. `sealed` says which."""

    def __init__(self, key: bytes | None) -> None:
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError("the key that seals answers has 32 bytes")
        self.sealed = key is not None
        self._cipher = AESGCM(key) if key is not None else None

    def close(self, data: bytes, bound: bytes) -> bytes:
        """What is stored of `data`."""
        if self._cipher is None:
            return data
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, bound)

    def open(self, sealed: bool, data: bytes, bound: bytes) -> bytes | None:
        """What was stored, None by rule 2."""
        if sealed != self.sealed:
            return None
        if self._cipher is None:
            return bytes(data)
        try:
            return self._cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            return None
