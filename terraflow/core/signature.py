"""Ed25519 signatures over DSSE envelopes: signing, key ids, verification.

1. What is signed is DSSE's pre-authentication encoding of the payload's type and bytes, so that a signature
   made for one type of document never counts for another. Source: DSSE protocol.md and envelope.md, version
   1.0.0.
2. An envelope is one canonical JSON object; base64 is the standard alphabet, padded, with its unused bits
   zero. The verifier compares encodings, so that changing any byte of an envelope makes it invalid, whichever
   it is. (DSSE lets a verifier accept the URL-safe alphabet as well; ours reads only what we write.)
3. Every signature in an envelope must be by a known key and must hold, and no key signs twice. A signature
   that cannot be checked is refused rather than skipped: skipping would let its bytes change unnoticed.
4. A key id is the SHA-256 of the key's DER SubjectPublicKeyInfo, in lower-case hexadecimal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from typing import NewType

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from terraflow.core.canonical import canonical

KeyId = NewType("KeyId", str)

SIGNATURES_MAX = 16
"""Far above any threshold of signers; bounds the work that a hostile envelope can ask for."""


class SignatureInvalid(ValueError):
    """The envelope is not one that the given keys signed; the text says why, and never quotes the
    envelope."""


class _Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keyid: str
    sig: str


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    payload: str
    payloadType: str  # noqa: N815  DSSE's spelling
    signatures: list[_Signature]


_decoder = msgspec.json.Decoder(_Envelope)


def key_id(key: Ed25519PublicKey) -> KeyId:
    """The id of a public key (rule 4)."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyId(hashlib.sha256(der).hexdigest())


def keyring(keys: Iterable[Ed25519PublicKey]) -> dict[str, Ed25519PublicKey]:
    """The keys by their ids, as `verify_envelope` takes them."""
    return {key_id(key): key for key in keys}


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, payload_type: str, key: Ed25519PrivateKey, *more: Ed25519PrivateKey) -> bytes:
    """A DSSE envelope around `payload`, signed by each key, as canonical JSON without a final newline."""
    signed = pae(payload_type, payload)
    signatures = [
        _Signature(keyid=key_id(k.public_key()), sig=base64.b64encode(k.sign(signed)).decode()) for k in (key, *more)
    ]
    return canonical(_Envelope(base64.b64encode(payload).decode(), payload_type, signatures))


def verify_envelope(
    raw: bytes, keys: Mapping[str, Ed25519PublicKey], payload_type: str, *, threshold: int = 1
) -> bytes:
    """The payload of an envelope of `payload_type` that at least `threshold` of `keys` (by key id) signed.

    Raises SignatureInvalid for anything else, also for another encoding of a valid envelope (rules 2 and 3).
    """
    try:
        envelope = _decoder.decode(raw)
        canonical_raw = canonical(envelope)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise SignatureInvalid("not a DSSE envelope") from None
    if canonical_raw != raw:
        raise SignatureInvalid("a DSSE envelope, but not in its canonical encoding")
    if envelope.payloadType != payload_type:
        raise SignatureInvalid("the envelope is of another payload type")
    if not threshold <= len(envelope.signatures) <= SIGNATURES_MAX or not envelope.signatures:
        raise SignatureInvalid("the envelope has too few or too many signatures")
    payload = _decode_base64(envelope.payload)
    signed = pae(payload_type, payload)
    seen: set[str] = set()
    for signature in envelope.signatures:
        key = keys.get(signature.keyid)
        if key is None:
            raise SignatureInvalid("signed with a key that is not trusted here")
        if signature.keyid in seen:
            raise SignatureInvalid("one key signed twice")
        seen.add(signature.keyid)
        try:
            key.verify(_decode_base64(signature.sig), signed)
        except InvalidSignature:
            raise SignatureInvalid("the signature does not match") from None
    return payload


def _decode_base64(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SignatureInvalid("not base64") from None
    if base64.b64encode(raw).decode() != text:
        raise SignatureInvalid("base64, but not in its canonical encoding")
    return raw
