"""From bytes to a bundle that may be enforced, or to the list of what is wrong with it.

What a request must be told is no ground to reject: a contract that is not approved, not yet effective or expired
(CONTRACT_NOT_EXECUTABLE), or of another tenant than its workload (TENANT_MISMATCH).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from terraflow.contracts.bundle import Bundle
from terraflow.contracts.decode import BundleRejected as BundleRejected
from terraflow.contracts.decode import decode_document
from terraflow.contracts.document import PAYLOAD_TYPE, BundleDocument
from terraflow.contracts.references import InsideBoundary, find_problems
from terraflow.core.canonical import NotCanonical, canonical_json
from terraflow.core.outcome import Problem
from terraflow.core.signature import sign_envelope
from terraflow.core.types import Instant


def verify_bundle(
    envelope: bytes,
    keys: Mapping[str, Ed25519PublicKey],
    now: Instant,
    *,
    active: bool = False,
    inside_boundary: InsideBoundary | None = None,
) -> Bundle:
    """The bundle of a DSSE envelope that one of `keys` (by key id) signed. Raises BundleRejected.

    `now` refuses an expired bundle, unless it is the `active` one being read again: requests to that are answered
    BUNDLE_EXPIRED. `inside_boundary` is asked of each private capability's host; without it addresses are only
    checked when requests are planned.
    """
    return Bundle(envelope, keys, now, active=active, inside_boundary=inside_boundary)


def sign_bundle(document: BundleDocument, key: Ed25519PrivateKey) -> bytes:
    """The envelope of a document that passes every check. Raises BundleRejected for one that does not."""
    problems = find_problems(document)
    if problems:
        raise BundleRejected(problems)
    return sign_envelope(payload_of(document), PAYLOAD_TYPE, key)


def read_unverified(envelope: bytes) -> BundleDocument:
    """The document in an envelope, its signature not looked at: to show it, never to enforce it. Raises
    BundleRejected."""
    try:
        payload = base64.b64decode(msgspec.json.decode(envelope)["payload"], validate=True)
        value = msgspec.json.decode(payload)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BundleRejected((Problem("$", "is not a signed bundle"),)) from None
    return decode_document(value)


def payload_of(document: BundleDocument) -> bytes:
    """The document's canonical JSON: what is signed. Raises BundleRejected for a value that has none."""
    try:
        return canonical_json(msgspec.json.decode(msgspec.json.encode(document)))
    except NotCanonical as error:
        raise BundleRejected((Problem("$", f"{error}: write amounts as text, and schemas with integers"),)) from None
