"""The encodings of an export, read strictly.

1. Every value has one encoding, and any other is refused: base64 with changed unused bits, JSON with other white
   space, a number with a leading zero. Where strangers' tools are tolerant, this one is not.
2. Nothing signed is looked at before its signature has been checked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

INTEGER_MAX = 2**53 - 1
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
STATEMENT_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")
"""DER of a SubjectPublicKeyInfo up to the 32 bytes of an Ed25519 key (RFC 8410 section 4)."""


class RecordName(NamedTuple):
    """Which record: its place in the tenant's log and the request that it is of, where either can be told."""

    tenant: str
    at: int | None
    request_id: str | None

    def __str__(self) -> str:
        place = "" if self.at is None else f"record {self.at} "
        return f"{place}of tenant {self.tenant}" + (f", request {self.request_id}" if self.request_id else "")


class Refused(Exception):
    """Something is not as it was signed. `where` names the file, and the record in it where one can be named; then
    `record` is that one."""

    def __init__(self, where: str, what: str, record: RecordName | None = None) -> None:
        super().__init__(where, what, record)
        self.where, self.what, self.record = where, what, record

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.record})" if self.record is not None else "")


class LogKey(NamedTuple):
    """A log's public key, as `<name>+<hash>+<base64>` gives it; the name is the log's origin."""

    name: str
    id: bytes
    public: bytes

    def signed(self, signature: bytes, message: bytes) -> bool:
        """Whether the key made this signature of this message."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class Checkpoint(NamedTuple):
    """What a log's signed note states: its size in records, and the root hash of its tree."""

    size: int
    root: bytes


def parse_key(text: str) -> LogKey:
    """A log's verifier key; raises ValueError for anything else."""
    found = re.fullmatch(r"([^\s+]+)\+([0-9a-f]{8})\+(\S+)", text)
    public = decode_base64(found[3]) if found else None
    if found is None or public is None or len(public) != 33 or public[0] != 1:
        raise ValueError("a verifier key is <name>+<hash>+<base64 of an Ed25519 key>")
    name, key_id = found[1], hashlib.sha256(found[1].encode() + b"\n" + public).digest()[:4]
    if key_id.hex() != found[2]:
        raise ValueError("the verifier key's hash does not match: it was mistyped or cut")
    return LogKey(name, key_id, public[1:])


def decode_base64(text: str) -> bytes | None:
    """The bytes of standard, padded base64 in its one encoding (rule 1), else None."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if base64.b64encode(raw) == text.encode() else None


def open_checkpoint(raw: bytes, key: LogKey, where: str, *, others: bool = False) -> Checkpoint:
    """The checkpoint that a log's key signed. `others`: further signatures, of witnesses, may stand beside it."""
    try:
        body, blank, lines = raw.decode().rpartition("\n\n")
    except UnicodeDecodeError:
        raise Refused(where, "is not text") from None
    signatures = lines.split("\n")
    if not blank or signatures.pop() != "" or (len(signatures) != 1 and not others) or len(signatures) > 64:
        raise Refused(where, "is not a signed note with one signature")
    text = body + "\n"
    if not any(_signed_by(key, line, text) for line in signatures):
        raise Refused(where, "is not signed by the given key")
    found = re.fullmatch(r"([^\n]+)\n(0|[1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n", text)
    root = decode_base64(found[3]) if found else None
    if found is None or root is None:
        raise Refused(where, "is signed, but is not a checkpoint")
    if found[1] != key.name:
        raise Refused(where, "is the checkpoint of another log")
    return Checkpoint(int(found[2]), root)


def _signed_by(key: LogKey, line: str, text: str) -> bool:
    prefix = f"— {key.name} "
    blob = decode_base64(line.removeprefix(prefix)) if line.startswith(prefix) else None
    return blob is not None and blob[:4] == key.id and key.signed(blob[4:], text.encode())


def open_envelope(raw: bytes, key: LogKey, where: str) -> bytes:
    """The in-toto statement in a DSSE envelope that the key alone signed."""
    envelope = parse_json(raw, where)
    key_id = hashlib.sha256(_SPKI_PREFIX + key.public).hexdigest()
    match envelope:
        case {
            "payload": str(text),
            "payloadType": str(kind),
            "signatures": [{"keyid": str(keyid), "sig": str(sig), **rest}],
            **more,
        } if not rest and not more:
            payload, signature = decode_base64(text), decode_base64(sig)
        case _:
            raise Refused(where, "is not a DSSE envelope with one signature")
    if payload is None or signature is None:
        raise Refused(where, "holds base64 that is not in its canonical encoding")
    signed = b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)
    if keyid != key_id or not key.signed(signature, signed):
        raise Refused(where, "is not signed by the given key")
    if kind != STATEMENT_PAYLOAD_TYPE:
        raise Refused(where, "is signed, but holds another type of document")
    return payload


def parse_json(raw: bytes, where: str) -> Any:
    """The value of canonical JSON (RFC 8785, integers only); refused in any other encoding.

    Keys are ordered by code point, which is RFC 8785's order for all keys below U+10000; there are no others.
    """
    try:
        return _parse(raw)
    except Unreadable as trouble:
        raise Refused(where, trouble.what) from None


class Unreadable(Exception):
    """Of several encodings, the one at `at` is not canonical JSON."""

    def __init__(self, what: str, at: int = 0) -> None:
        super().__init__(what, at)
        self.what, self.at = what, at


def parse_objects(raws: Sequence[bytes]) -> list[dict[str, Any]]:
    """The objects of several canonical encodings, as `parse_json` would read each, in less time. Raises Unreadable.

    They are encoded again together. Each is one whole object, and no object's text is the beginning of another's,
    so the joined encodings are equal only if every one is.
    """
    try:
        values = [_decode(raw) for raw in raws]
        if all(type(value) is dict for value in values) and _encode(values).encode() == b"[%s]" % b",".join(raws):
            return values
    except (Unreadable, ValueError, RecursionError):
        pass
    for at, raw in enumerate(raws):
        try:
            value = _parse(raw)
        except Unreadable as trouble:
            raise Unreadable(trouble.what, at) from None
        if type(value) is not dict:
            raise Unreadable("is not an object", at)
    raise AssertionError("encodings that are canonical one by one are so together")


def _parse(raw: bytes) -> Any:
    value = _decode(raw)
    try:
        again = _encode(value).encode()
    except (ValueError, RecursionError):
        raise Unreadable("is JSON of more than integers and text") from None
    if again != raw:
        raise Unreadable("is JSON, but not in its canonical encoding")
    return value


def _decode(raw: bytes) -> Any:
    try:
        text = raw.decode()
        if _SIXTEEN in raw.translate(_DIGITS):
            _bounded_decoder.decode(text)
        value, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        raise Unreadable("is not JSON of integers and text") from None
    if end != len(text):
        raise Unreadable("is more than one JSON value")
    return value


def _refuse(_literal: str) -> NoReturn:
    raise ValueError


def _bounded(literal: str) -> int:
    if not -INTEGER_MAX <= (value := int(literal)) <= INTEGER_MAX:
        raise ValueError
    return value


_decoder = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)
_bounded_decoder = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse, parse_int=_bounded)
_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else ord("x") for byte in range(256))
_SIXTEEN = b"0" * 16
"""Sixteen digits in a row: only then can a number be beyond 53 bits, and only then is it worth a second look."""
