"""API keys: their form, and that only a digest is kept."""

from __future__ import annotations

import re
import secrets

from terraflow.identity.keys import key_digest, make_key


def test_a_new_key_has_the_form_and_256_random_bits() -> None:
    made = [make_key(secrets.token_urlsafe, secrets.token_hex) for _ in range(200)]
    assert all(re.fullmatch(r"tf_[A-Za-z0-9_-]{43}", key.text) for key in made)
    assert len({key.text for key in made}) == len({key.id for key in made}) == len({key.digest for key in made}) == 200
    assert all(
        key.digest == key_digest(key.text.encode()) and key.text not in repr((key.id, key.digest)) for key in made
    )


def test_the_digest_is_plain_sha_256() -> None:
    """Expected value by coreutils' sha256sum."""
    expected = "2e7fd691533b70b724c2a67d3b51f4a1ded97980cace6e82c34d09ea10757b21"
    assert key_digest(b"tf_" + b"a" * 43) == expected
