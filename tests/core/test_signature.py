"""DSSE envelopes: what verifies, and that nothing else does."""

from __future__ import annotations

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from terraflow.core.signature import SignatureInvalid, key_id, keyring, pae, sign_envelope, verify_envelope

KIND = "application/vnd.example+json"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
RING = keyring([KEY.public_key()])
BOTH = keyring([KEY.public_key(), OTHER.public_key()])


def test_the_pre_authentication_encoding_is_the_specifications_example() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_a_signed_payload_comes_back(payload: bytes) -> None:
    assert verify_envelope(sign_envelope(payload, KIND, KEY), RING, KIND) == payload


def test_a_change_of_any_byte_to_any_value_is_refused() -> None:
    raw = sign_envelope(b"{}", KIND, KEY)
    for at in range(len(raw)):
        for value in range(256):
            if value == raw[at]:
                continue
            with pytest.raises(SignatureInvalid):
                verify_envelope(raw[:at] + bytes([value]) + raw[at + 1 :], RING, KIND)


def test_a_byte_added_or_taken_away_is_refused() -> None:
    raw = sign_envelope(b"payload", KIND, KEY)
    for at in range(len(raw) + 1):
        for changed in (raw[:at] + b" " + raw[at:], raw[:at] + raw[at + 1 :], raw[:at]):
            if changed != raw:
                with pytest.raises(SignatureInvalid):
                    verify_envelope(changed, RING, KIND)


def test_another_type_another_key_or_no_key_is_refused() -> None:
    raw = sign_envelope(b"x", KIND, KEY)
    for ring, kind in [(RING, "application/other"), (keyring([OTHER.public_key()]), KIND), ({}, KIND)]:
        with pytest.raises(SignatureInvalid):
            verify_envelope(raw, ring, kind)
    mislabelled = {key_id(KEY.public_key()): OTHER.public_key()}
    with pytest.raises(SignatureInvalid):
        verify_envelope(raw, mislabelled, KIND)


def test_a_threshold_counts_keys_not_signatures() -> None:
    raw = sign_envelope(b"x", KIND, KEY, OTHER)
    assert verify_envelope(raw, BOTH, KIND, threshold=2) == b"x"
    for few, ring in [
        (sign_envelope(b"x", KIND, KEY), BOTH),
        (sign_envelope(b"x", KIND, KEY, KEY), BOTH),
        (raw, RING),
    ]:
        with pytest.raises(SignatureInvalid):
            verify_envelope(few, ring, KIND, threshold=2)


def test_an_envelope_without_signatures_is_refused_at_any_threshold() -> None:
    envelope = json.loads(sign_envelope(b"x", KIND, KEY))
    envelope["signatures"] = []
    raw = json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()
    for threshold in (0, 1):
        with pytest.raises(SignatureInvalid):
            verify_envelope(raw, RING, KIND, threshold=threshold)


def test_equal_values_in_another_encoding_are_refused() -> None:
    envelope = json.loads(sign_envelope(b"\xff\xfe?", KIND, KEY))
    payload, sig = envelope["payload"], envelope["signatures"][0]["sig"]
    spellings = [
        json.dumps(envelope, sort_keys=True),
        json.dumps({**envelope, "payload": base64.urlsafe_b64encode(base64.b64decode(payload)).decode()}),
        json.dumps({**envelope, "payload": payload.rstrip("=")}),
        json.dumps({**envelope, "extra": 1}, sort_keys=True, separators=(",", ":")),
        json.dumps(envelope, sort_keys=True, separators=(",", ":")).replace(sig, sig[:-3] + "h==", 1),
        json.dumps(envelope, sort_keys=True, separators=(",", ":")).replace("payload", "\\u0070ayload", 1),
    ]
    for spelling in spellings:
        with pytest.raises(SignatureInvalid):
            verify_envelope(spelling.encode(), RING, KIND)
