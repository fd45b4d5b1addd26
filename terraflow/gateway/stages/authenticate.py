"""Step 1: whose key is it. The code, if any, is in the error body alone."""

from __future__ import annotations

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.identity.keys import PREFIX, key_digest
from terraflow.ports.store import KeyHolder, Store

_PREFIX = PREFIX.encode()


async def authenticate(store: Store, api_key: bytes | None) -> KeyHolder | Refuse:
    """The holder of the key. Keys are looked up by their SHA-256, so no comparison depends on a secret's bytes; the
    store is asked every time, so that a revoked key ends at once."""
    if api_key is None or not api_key.startswith(_PREFIX):
        return Refuse(reason=Governed.APP_UNAUTHENTICATED)
    holder = await store.find_key(key_digest(api_key))
    return Refuse(reason=Governed.APP_UNAUTHENTICATED) if holder is None else holder
