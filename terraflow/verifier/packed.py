"""Tables that were too long for a record: packed into it beside their digest, or their digest alone.

A record's `detached` is {"bytes": size, "digest": SHA-256, "fields": names, "packed": base64}. What is packed is
canonical JSON, an object by those names, under zlib (RFC 1950).
"""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import Any

from terraflow.verifier.formats import Refused, decode_base64, parse_json

TABLES_BYTES_MAX = 64 * 1024 * 1024
"""What packed tables may come to; the format's own bound."""


def tables_of(detached: Any) -> dict[str, Any] | None:
    """The packed tables by name; empty where there is a digest alone, None where they are not those of the digest."""
    match detached:
        case {"bytes": int(size), "digest": str(digest), "fields": [*fields], "packed": str(text), **more} if not more:
            packed = decode_base64(text)
        case {"bytes": int(), "digest": str(), "fields": [*_], **more} if not more:
            return {}
        case _:
            return None
    if packed is None or not 0 <= size <= TABLES_BYTES_MAX:
        return None
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(packed, size + 1)
        tables = parse_json(raw, "detached")
    except (zlib.error, Refused):
        return None
    whole = unpacking.eof and not unpacking.unused_data and len(raw) == size and sha256(raw).hexdigest() == digest
    return tables if whole and isinstance(tables, dict) and sorted(tables) == sorted(fields) else None


def whole(record: dict[str, Any], where: str) -> dict[str, Any]:
    """A record with its packed tables in their places. Raises Refused."""
    if "detached" not in record:
        return record
    tables = tables_of(record["detached"])
    if tables is None:
        raise Refused(where, NOT_THOSE)
    if not tables:
        return record
    rest = {name: value for name, value in record.items() if name != "detached"}
    return rest | {name: value for name, value in tables.items() if value not in ([], None)}


NOT_THOSE = "holds packed tables that are not those of their digest"
