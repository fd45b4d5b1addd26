"""A request's header list, judged: malformed, refused before it runs, or a call's head.

1. What RFC 9113 calls malformed (section 8.1.1) ends the stream: `Malformed`.
2. What is well-formed but no gRPC call, or one that cannot be served, is a head with a `refusal`: an HTTP status (200
   when it is gRPC's to say) and a gRPC status.
3. Metadata is decoded with its head, which is kept (`compression`). Names that gRPC reserves are not metadata.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.status import Status

ENCODINGS = ("identity", "deflate", "gzip")
"""How messages may be compressed; told to a caller that used another."""

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"(?![ \t])[^\x00\r\n]*(?<![ \t])")
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_GRPC = re.compile(rb"application/grpc(?:\+proto)?(?:[; ].*)?")
_PSEUDO = (b":method", b":scheme", b":path", b":authority")
_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
_NOT_METADATA = frozenset((b"te", b"content-type", b"content-length", b"host"))

Fields = Iterable[tuple[bytes, bytes]]
Metadata = tuple[tuple[str, str | bytes], ...]


class Malformed(Exception):
    """The header list breaks HTTP/2's rules."""


class Refusal(NamedTuple):
    """How a call ends before it begins."""

    http_status: int
    status: Status
    message: str


class Head:
    """A call's head. `timeout_s` is None without a deadline, `content_length` None when it was not said."""

    __slots__ = ("content_length", "encoding", "metadata", "path", "refusal", "timeout_s")

    def __init__(self, path: str, metadata: Metadata) -> None:
        self.path = path
        self.metadata = metadata
        self.timeout_s: float | None = None
        self.encoding = "identity"
        self.content_length: int | None = None
        self.refusal: Refusal | None = None

    def within(self, timeout: bytes, limits: Limits) -> Head:
        """The same head with the value of a `grpc-timeout`."""
        head = Head(self.path, self.metadata)
        head.encoding, head.content_length = self.encoding, self.content_length
        head.refusal = self.refusal or _timeout(head, timeout, limits)
        return head


def _decoded(name: bytes, value: bytes) -> Metadata:
    """One field; binascii.Error when it should be base64 and is not."""
    if not name.endswith(b"-bin"):
        return ((name.decode("ascii"), value.decode("latin-1")),)
    parts = (part.strip(b" ") for part in value.split(b","))
    return tuple([(name.decode("ascii"), binascii.a2b_base64(part + b"=" * (-len(part) % 4))) for part in parts])


def _timeout(head: Head, value: bytes, limits: Limits) -> Refusal | None:
    matched = _TIMEOUT.fullmatch(value)
    if matched is None:
        return Refusal(200, Status.INTERNAL, "grpc-timeout is malformed")
    head.timeout_s = min(int(matched[1]) * _UNITS_S[matched[2]], limits.deadline_s_max)
    return None


def _encoding(head: Head, value: bytes, _: Limits) -> Refusal | None:
    head.encoding = value.decode("latin-1")
    if head.encoding in ENCODINGS:
        return None
    return Refusal(200, Status.UNIMPLEMENTED, f"messages cannot be compressed by {head.encoding[:64]}")


def _content_type(_: Head, value: bytes, __: Limits) -> Refusal | None:
    if _GRPC.fullmatch(value):
        return None
    return Refusal(415, Status.UNKNOWN, "the content type is not application/grpc")


def _content_length(head: Head, value: bytes, _: Limits) -> Refusal | None:
    if not value.isdigit() or len(value) > 18:
        raise Malformed("content-length is no number")
    head.content_length = int(value)
    return None


_READ: dict[bytes, Callable[[Head, bytes, Limits], Refusal | None]] = {
    b"grpc-encoding": _encoding,
    b"content-type": _content_type,
    b"content-length": _content_length,
}


def _split(fields: Fields) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]]]:
    """The pseudo-headers and the others; Malformed as section 8.2 has it."""
    pseudo: dict[bytes, bytes] = {}
    others: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        if not _VALUE.fullmatch(value):
            raise Malformed("a value has forbidden characters")
        if name[:1] == b":":
            if others or name in pseudo or name not in _PSEUDO:
                raise Malformed("pseudo-headers are misplaced, doubled or unknown")
            pseudo[name] = value
        elif not _NAME.fullmatch(name) or name in _HOP_BY_HOP or (name == b"te" and value != b"trailers"):
            raise Malformed("a field that HTTP/2 forbids")
        else:
            others.append((name, value))
    return pseudo, others


def judge(fields: Fields, list_bytes: int, limits: Limits) -> Head:
    """The head of a request. `list_bytes` is the header list's size, 32 bytes added a field."""
    pseudo, others = _split(fields)
    path, method = pseudo.get(b":path", b""), pseudo.get(b":method", b"")
    if not method or pseudo.get(b":scheme") not in (b"http", b"https") or path[:1] != b"/":
        raise Malformed("a pseudo-header is missing or wrong")
    metadata: list[tuple[str, str | bytes]] = []
    head = Head(path.decode("latin-1"), ())
    refusals: list[Refusal | None] = []
    if method != b"POST":
        refusals.append(Refusal(405, Status.INTERNAL, "the method is not POST"))
    if not any(name == b"content-type" for name, _ in others):
        refusals.append(Refusal(415, Status.UNKNOWN, "there is no content type"))
    if list_bytes > limits.metadata_bytes_max:
        refusals.append(Refusal(200, Status.RESOURCE_EXHAUSTED, "the metadata is too large"))
    for name, value in others:
        read = _READ.get(name)
        if read is not None:
            refusals.append(read(head, value, limits))
        elif name not in _NOT_METADATA and not name.startswith(b"grpc-"):
            try:
                metadata += _decoded(name, value)
            except binascii.Error:
                refusals.append(Refusal(200, Status.INTERNAL, "binary metadata is not base64"))
    head.metadata = tuple(metadata)
    head.refusal = next((refusal for refusal in refusals if refusal is not None), None)
    return head


def judge_trailers(fields: Fields) -> None:
    """Malformed, when the list could not be trailers."""
    if _split(fields)[0]:
        raise Malformed("pseudo-headers among trailers")
