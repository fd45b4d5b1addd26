"""API keys: their form, and that only a digest is kept."""

from __future__ import annotations

import secrets

import pytest

from terraflow.identity.keys import has_key_form, key_digest, make_key


def test_a_new_key_has_the_form_and_256_random_bits() -> None:
    made = [make_key(secrets.token_urlsafe, secrets.token_hex) for _ in range(200)]
    assert all(has_key_form(key.text) and len(key.text) == 46 for key in made)
    assert len({key.text for key in made}) == len({key.id for key in made}) == len({key.digest for key in made}) == 200
    assert all(key.digest == key_digest(key.text) and key.text not in repr((key.id, key.digest)) for key in made)


def test_the_digest_is_plain_sha_256() -> None:
    """Expected value by coreutils' sha256sum."""
    expected = "2e7fd691533b70b724c2a67d3b51f4a1ded97980cace6e82c34d09ea10757b21"
    assert key_digest("tf_" + "a" * 43) == expected


@pytest.mark.parametrize(
    "text", ["", "tf_", "sk-" + "a" * 43, "tf_" + "a" * 42, "tf_" + "a" * 44, "tf_" + "a" * 42 + "="]
)
def test_what_is_not_of_the_form_is_no_key(text: str) -> None:
    assert not has_key_form(text)
