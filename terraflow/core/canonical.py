"""The one byte form of whatever is hashed or signed: JSON as RFC 8785 (JCS) writes it, over a smaller domain.

1. The domain: null, booleans, integers of at most 53 bits and a sign, strings without lone surrogates,
   arrays, and objects with string keys. No floating-point number has a place in it: money is micro-dollars,
   time is text.
2. One value has one encoding; `parse_canonical` refuses every other one (white space, another order of keys,
   a doubled key, a needless escape, `1.0`, `-0`), so that equal bytes and equal values are the same thing.
3. RFC 8785 orders keys by UTF-16 code units, msgspec by UTF-8 bytes. The two differ only where a key holds a
   character above U+FFFF; such values take the slow path, which orders them as the RFC says.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import msgspec

from terraflow.core.types import Json

INTEGER_MAX = 2**53 - 1
"""The greatest integer that every JSON reader keeps exactly (RFC 8785 appendix D, RFC 7493 section 2.2)."""

_ABOVE_BMP = re.compile(rb"[\xf0-\xf4]")
_LONG_NUMBER = re.compile(rb"[0-9]{16}")


class NotCanonical(ValueError):
    """The bytes are not the canonical encoding of a value, or the value has none."""


def _refuse_float(_literal: str) -> NoReturn:
    raise ValueError("a number with a fraction or an exponent")


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(float_hook=_refuse_float)


def canonical(value: Any) -> bytes:
    """The canonical bytes of a typed value (a Struct, or builtins), for values whose types keep rule 1.

    What the types cannot rule out is the caller's to keep: a float or an integer beyond 53 bits is written as
    msgspec writes it. For values of unknown make use `canonical_json`. A lone surrogate raises NotCanonical.
    """
    try:
        raw = _encoder.encode(value)
    except UnicodeEncodeError:
        raise NotCanonical("a lone surrogate has no encoding") from None
    if raw.isascii() or _ABOVE_BMP.search(raw) is None:
        return raw
    return _encode_by_utf16(msgspec.json.decode(raw))


def canonical_json(value: Json) -> bytes:
    """The canonical bytes of a plain JSON value; raises NotCanonical for one outside the domain."""
    try:
        _refuse_outside(value)
        return canonical(value)
    except RecursionError:
        raise NotCanonical("nested too deeply") from None


def parse_canonical(raw: bytes) -> Json:
    """The value of `raw`; raises NotCanonical unless `raw` is exactly what `canonical_json` writes for it."""
    try:
        value: Json = _decoder.decode(raw)
        if _LONG_NUMBER.search(raw) is not None:
            _refuse_outside(value)
        again = canonical(value)
    except RecursionError:
        raise NotCanonical("nested too deeply") from None
    except NotCanonical:
        raise
    except (msgspec.DecodeError, ValueError):
        raise NotCanonical("not JSON of the canonical domain") from None
    if again != raw:
        raise NotCanonical("JSON, but not in its canonical encoding")
    return value


def _refuse_outside(value: object) -> None:
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int):
        if not -INTEGER_MAX <= value <= INTEGER_MAX:
            raise NotCanonical("an integer beyond 53 bits")
    elif isinstance(value, list):
        for item in value:
            _refuse_outside(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotCanonical("a key that is not a string")
            _refuse_outside(item)
    else:
        raise NotCanonical(f"a {type(value).__name__} has no canonical form")


def _encode_by_utf16(value: Json) -> bytes:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return b"{" + b",".join(_encoder.encode(k) + b":" + _encode_by_utf16(value[k]) for k in keys) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_encode_by_utf16, value)) + b"]"
    return _encoder.encode(value)
