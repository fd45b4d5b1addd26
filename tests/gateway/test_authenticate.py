"""Whose key it is: asked in every turn of the loop, once for all who come with it in that turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.stages.authenticate import Keys
from terraflow.identity.keys import key_digest
from terraflow.ports.store import ApiKey, KeyHolder
from terraflow.storage.sqlite.store import SqliteStore, open_store
from terraflow.storage.sqlite.tools import open_tools
from tests.storage.makers import NOW, SetClock

KEY = b"tf_" + b"k" * 43


async def next_turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class Asked:
    """The real store, and what it was asked."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.digests: list[str] = []

    async def find_key(self, digest: str) -> KeyHolder | None:
        self.digests.append(digest)
        return await self.store.find_key(digest)


async def test_a_key_is_asked_for_once_in_a_turn_and_ends_with_the_next(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    asked = Asked(store)
    keys = Keys(asked)  # type: ignore[arg-type]
    with open_tools(tmp_path) as tools:
        tools.add_key(ApiKey("key_1", "acme", "app", key_digest(KEY), NOW))
        for _ in range(3):
            assert await keys.authenticate(KEY) == KeyHolder("acme", "app", "key_1")
        assert len(asked.digests) == 1
        assert KEY.decode() not in repr(vars(keys)), "it is known by its digest alone"
        await next_turn()
        assert await keys.authenticate(KEY) == KeyHolder("acme", "app", "key_1")
        assert len(asked.digests) == 2
        tools.revoke_key("key_1", NOW)
        await next_turn()
        found = await keys.authenticate(KEY)
    assert isinstance(found, Refuse) and found.reason is Governed.APP_UNAUTHENTICATED
    await store.close()


async def test_what_is_no_key_is_not_asked_for(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=SetClock())
    asked = Asked(store)
    keys = Keys(asked)  # type: ignore[arg-type]
    for key in (None, b"", b"sk-1"):
        assert isinstance(await keys.authenticate(key), Refuse)
    assert not asked.digests
    await store.close()
