"""What a tool does to a data folder: keys and bundles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from terraflow.core.types import Instant
from terraflow.ports.store import ApiKey, StoreConflict
from terraflow.storage.sqlite.tools import Tools, open_tools
from tests.storage.makers import NOW


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Tools]:
    with open_tools(tmp_path / "data", make=True) as opened:
        yield opened


def test_api_keys_are_listed_and_revoked_and_never_used_twice(tools: Tools) -> None:
    one = ApiKey("key_1", "acme", "app", "1" * 64, NOW)
    two = ApiKey("key_2", "acme", "app", "2" * 64, Instant(NOW + 1))
    tools.add_key(two)
    tools.add_key(one)
    assert tools.keys("acme") == [one, two]
    assert tools.keys("globex") == []
    for same in (ApiKey("key_1", "acme", "app", "4" * 64, NOW), ApiKey("key_4", "acme", "app", "1" * 64, NOW)):
        with pytest.raises(StoreConflict):
            tools.add_key(same)
    assert tools.revoke_key("key_1", NOW)
    assert not tools.revoke_key("key_1", NOW)
    assert not tools.revoke_key("key_9", NOW)
    assert tools.keys("acme") == [two]


def test_a_bundle_is_activated_only_above_the_active_one(tools: Tools) -> None:
    assert (tools.active_bundle(), tools.active_sequence()) == (None, 0)
    assert tools.activate_bundle(b"one", 5, NOW)
    assert not tools.activate_bundle(b"same", 5, NOW)
    assert not tools.activate_bundle(b"older", 4, NOW)
    assert tools.active_bundle() == b"one"
    assert tools.activate_bundle(b"two", 6, NOW)
    assert (tools.active_bundle(), tools.active_sequence()) == (b"two", 6)
