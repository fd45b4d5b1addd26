"""Step 1: whose key is it. The code, if any, is in the error body alone.

1. Keys are looked up by their SHA-256, so no comparison depends on a secret's bytes.
2. The store is asked in every turn of the loop anew, so that a revoked key ends at once. Whoever comes with the same
   key in the same turn has the same answer: in a flood nearly everybody does.
"""

from __future__ import annotations

import asyncio

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.identity.keys import PREFIX, key_digest
from terraflow.ports.store import KeyHolder, Store

_PREFIX = PREFIX.encode()
_UNKNOWN = Refuse(reason=Governed.APP_UNAUTHENTICATED)


class Keys:
    """The keys of one store, asked on one loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, KeyHolder | Refuse] = {}

    async def authenticate(self, api_key: bytes | None) -> KeyHolder | Refuse:
        """The holder of the key. Raises StoreUnavailable."""
        if api_key is None or not api_key.startswith(_PREFIX):
            return _UNKNOWN
        digest = key_digest(api_key)
        found = self._found.get(digest)
        if found is None:
            found = await self._store.find_key(digest) or _UNKNOWN
            if not self._found:
                asyncio.get_running_loop().call_soon(self._found.clear)
            self._found[digest] = found
        return found
