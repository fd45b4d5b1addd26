"""Header compression on one connection: blocks to heads by hpack, and the server's own blocks.

1. A block that was decoded without changing the dynamic table means the same until the table changes: its head is kept
   by the block's bytes. Clients repeat themselves, so the hot path decodes nothing. Heads are also kept by their fields
   without the deadline, which differs from call to call with some clients: those pay for decoding alone.
2. The server's own blocks use neither the dynamic table nor Huffman codes: each is the same bytes on every connection.
   After the peer has set a table size, the next block says that the table is empty (RFC 7541, section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hpack import Decoder, HPACKError
from hpack.table import HeaderTable

from terraflow.hints.http2.frames import ConnectionFault, ErrorCode
from terraflow.hints.http2.heads import Head, Malformed, judge, judge_trailers
from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.status import Status

TABLE_EMPTIED = b"\x20"
_TIMEOUT = b"grpc-timeout"
_KEPT_MAX = 16
_KEPT_BYTES_MAX = 1_024
_MESSAGE_CHARS_MAX = 1_024
_STATUS_200 = b"\x88"
_CONTENT_TYPE = b"\x0f\x10"
_NAMED_STATUS = b"\x08"


class _WatchedTable(HeaderTable):
    """hpack's table, counting its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return super().maxsize

    @maxsize.setter
    def maxsize(self, newmax: int) -> None:
        self.changes += 1
        HeaderTable.maxsize.fset(self, newmax)  # type: ignore[attr-defined]


_Key = TypeVar("_Key")


def _keep(kept: dict[_Key, Head], key: _Key, head: Head) -> None:
    if len(kept) >= _KEPT_MAX:
        kept.clear()
    kept[key] = head


class HeaderReader:
    """The inbound direction of one connection."""

    __slots__ = ("_decoder", "_heads", "_kept", "_limits", "_table")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoder = Decoder(max_header_list_size=limits.header_list_bytes_max)
        self._table = _WatchedTable()
        self._decoder.header_table = self._table
        self._kept: dict[bytes, Head] = {}
        self._heads: dict[tuple[tuple[bytes, bytes], ...], Head] = {}

    def _fields(self, block: bytes) -> Sequence[tuple[bytes, bytes]]:
        try:
            return list(self._decoder.decode(block, raw=True))
        except (HPACKError, IndexError, ValueError) as refused:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "a header block cannot be decoded") from refused

    def head(self, block: bytes) -> Head:
        """A request's head; Malformed, or ConnectionFault when nothing after it could be decoded either."""
        kept = self._kept.get(block)
        if kept is not None:
            return kept
        before = self._table.changes
        fields = self._fields(block)
        if self._table.changes != before:
            self._kept.clear()
        head = self._judged(fields)
        if self._table.changes == before and len(block) <= _KEPT_BYTES_MAX:
            _keep(self._kept, block, head)
        return head

    def _judged(self, fields: Sequence[tuple[bytes, bytes]]) -> Head:
        timeouts = [at for at, one in enumerate(fields) if one[0] == _TIMEOUT]
        others = tuple(one for one in fields if one[0] != _TIMEOUT) if timeouts else tuple(fields)
        head = self._heads.get(others)
        if head is None:
            size = sum(len(name) + len(value) + 32 for name, value in others)
            head = judge(others, size, self._limits)
            if size <= _KEPT_BYTES_MAX:
                _keep(self._heads, others, head)
        if not timeouts:
            return head
        if any(one[0][:1] == b":" for one in fields[timeouts[0] :]):
            raise Malformed("pseudo-headers are misplaced")
        return head.within(fields[timeouts[0]][1], self._limits)

    def trailers(self, block: bytes) -> None:
        """Trailers say nothing to a server, and are decoded all the same, for the table."""
        before = self._table.changes
        fields = self._fields(block)
        if self._table.changes != before:
            self._kept.clear()
        judge_trailers(fields)


def _integer(value: int, prefix_bits: int) -> bytes:
    top = (1 << prefix_bits) - 1
    if value < top:
        return bytes((value,))
    rest, out = value - top, bytearray((top,))
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _text(value: bytes) -> bytes:
    return _integer(len(value), 7) + value


def field(name: bytes, value: bytes) -> bytes:
    """A literal field that no table keeps."""
    return b"\x00" + _text(name) + _text(value)


def _percent_encoded(message: str) -> bytes:
    """`grpc-message`: UTF-8, with everything but printable ASCII, and the percent sign, as %XX."""
    kept = message[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace")
    return b"".join(bytes((c,)) if 0x20 <= c <= 0x7E and c != 0x25 else b"%%%02X" % c for c in kept)


RESPONSE = _STATUS_200 + _CONTENT_TYPE + _text(b"application/grpc")
"""The block that opens a reply."""
TRAILERS_OK = field(b"grpc-status", b"0")


def trailers(status: Status, message: str) -> bytes:
    """The block that ends a reply."""
    told = field(b"grpc-status", b"%d" % status)
    return told + field(b"grpc-message", _percent_encoded(message)) if message else told


def trailers_only(http_status: int, status: Status, message: str, extra: bytes = b"") -> bytes:
    """The block of a reply that is nothing but its end."""
    if http_status == 200:
        opening = RESPONSE
    else:
        opening = _NAMED_STATUS + _text(b"%d" % http_status) + _CONTENT_TYPE + _text(b"application/grpc")
    return opening + extra + trailers(status, message)
