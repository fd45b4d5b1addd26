"""gRPC's messages in a stream's bytes: a flag u8, a length u32, the message; compressed ones in bounds.

1. Bytes are kept as they came, and taken apart one message at a time when somebody asks: what is kept is never more
   than what the peer sent.
2. A message that says it is larger than the bound is refused before it has come.
3. Decompression stops at the bound.
"""

from __future__ import annotations

import struct
import zlib

from terraflow.hints.http2.status import GrpcError, Status

PREFIX_BYTES = 5
_PREFIX = struct.Struct(">BI")
_WINDOW_BITS = {"gzip": 31, "deflate": 15}


def _inflate(message: bytes, encoding: str, bytes_max: int) -> bytes:
    bits = _WINDOW_BITS.get(encoding)
    if bits is None:
        raise GrpcError(Status.INTERNAL, "a compressed message on a call that named no compression")
    inflater = zlib.decompressobj(bits)
    try:
        plain = inflater.decompress(message, bytes_max)
        if inflater.unconsumed_tail:
            plain += inflater.decompress(inflater.unconsumed_tail, 1)
    except zlib.error as refused:
        raise GrpcError(Status.INTERNAL, "a compressed message cannot be decompressed") from refused
    if len(plain) > bytes_max:
        raise too_large(bytes_max)
    if not inflater.eof:
        raise GrpcError(Status.INTERNAL, "a compressed message is cut short")
    return plain


def too_large(bytes_max: int) -> GrpcError:
    """The refusal of a message."""
    return GrpcError(Status.RESOURCE_EXHAUSTED, f"a message is larger than {bytes_max} bytes")


class Incoming:
    """The bytes of one stream that nobody has read yet."""

    __slots__ = ("_bytes", "_bytes_max", "_encoding")

    def __init__(self, encoding: str, bytes_max: int) -> None:
        self._bytes = bytearray()
        self._encoding = encoding
        self._bytes_max = bytes_max

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        """More bytes; GrpcError when the first message, by its prefix, cannot be accepted."""
        self._bytes += data
        if len(self._bytes) >= PREFIX_BYTES:
            self._prefix()

    def _prefix(self) -> tuple[int, int]:
        flag, length = _PREFIX.unpack_from(self._bytes)
        if flag > 1:
            raise GrpcError(Status.INTERNAL, f"a message has the flag {flag}, which means nothing")
        if length > self._bytes_max:
            raise too_large(self._bytes_max)
        return flag, length

    def complete(self) -> bool:
        """Whether a whole message is there."""
        return len(self._bytes) >= PREFIX_BYTES and len(self._bytes) >= PREFIX_BYTES + self._prefix()[1]

    def take(self) -> bytes | None:
        """The first message, decompressed, or None when it is not whole; GrpcError when it cannot be read."""
        if not self.complete():
            return None
        flag, length = self._prefix()
        message = bytes(memoryview(self._bytes)[PREFIX_BYTES : PREFIX_BYTES + length])
        del self._bytes[: PREFIX_BYTES + length]
        return _inflate(message, self._encoding, self._bytes_max) if flag else message
