"""Which heads the connection refuses unread: those that two readers could frame or route differently.

llhttp refuses what is malformed: a second Content-Length, one beside Transfer-Encoding, a folded line, a bare LF or
CR, a length that is no number, a chunk that is none. It lets pass what is refused here:

1. Another version than 1.0 and 1.1.
2. A transfer coding that is not `chunked` alone, or that HTTP/1.0 names; a second header of FRAMING's.
3. No Host in HTTP/1.1, or one that is no host; a target whose authority is another than the Host.
4. A target that is no path, or that has a fragment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from terraflow.core.outcome import Refuse, invalid_request
from terraflow.gateway.http.head import HEAD_BYTES_MAX, HEADERS_MAX

FRAMING = frozenset((b"content-length", b"transfer-encoding", b"host", b"expect"))
"""The headers that this table and the connection read; a second one of a name is refused as it is parsed."""
PIPELINE_MAX = 16
"""Requests that wait behind one of the same connection: clients that pipeline at all keep to fewer."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
"""A name as hosts have them, or an address: of what a URI may hold beyond, some is read as the end of the name."""
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)(/[^?#]*)?(?:\?[^#]*)?", re.IGNORECASE)


MALFORMED = invalid_request("request", "must be HTTP/1.1")
TOO_MANY = invalid_request("headers", f"must be at most {HEADERS_MAX}")
TOO_LONG = invalid_request("headers", f"must be at most {HEAD_BYTES_MAX} bytes")
TOO_SLOW = invalid_request("headers", "must arrive in time")
PIPELINED = invalid_request("request", f"must not be pipelined behind more than {PIPELINE_MAX}")
HOST = invalid_request("host", "must be given once, and name a host")
_PATH = invalid_request("path", "must be an absolute path")
_CODING = invalid_request("transfer-encoding", "must be chunked, and of HTTP/1.1")


def refused(version: str, framing: Mapping[bytes, bytes]) -> Refuse | None:
    """The refusal of a head by rules 1 to 3; `framing` has its FRAMING headers, each given once, by lower-case name."""
    if version != "1.1" and version != "1.0":
        return MALFORMED
    coding = framing.get(b"transfer-encoding")
    if coding is not None and (version == "1.0" or coding.strip().lower() != b"chunked"):
        return _CODING
    host = framing.get(b"host")
    if host is None:
        return HOST if version == "1.1" else None
    return None if _HOST.fullmatch(host.strip()) is not None else HOST


def path_of(target: bytes, framing: Mapping[bytes, bytes]) -> bytes | Refuse:
    """The path of a request's target, without its query, or the refusal by rules 3 and 4."""
    if target[:1] == b"/":
        return _PATH if b"#" in target else target.partition(b"?")[0]
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return _PATH
    authority = found[1].lower()
    if framing.get(b"host", authority).strip().lower() != authority:
        return HOST
    return found[2] or b"/"
