"""An adapter that faces a vendor of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from terraflow.app.runtime import SystemClock
from terraflow.contracts.capability import ProviderKind
from terraflow.ports.upstream import Provider
from terraflow.providers.open import open_provider
from terraflow.providers.outbound import Outbound
from tests.providers.sample import LOOPBACK, capability
from tests.providers.vendor import Reply, Vendor


@asynccontextmanager
async def facing_vendor(
    kind: ProviderKind, *replies: Reply, path: str = "", **fields: Any
) -> AsyncIterator[tuple[Provider, Vendor]]:
    """An adapter of this kind, of a capability with these fields, and the vendor below whose `path` it asks."""
    vendor = await Vendor(*replies).start()
    outbound = Outbound(LOOPBACK)
    asked = capability(kind, **{"endpoint": f"http://127.0.0.1:{vendor.port}{path}"} | fields)
    opened = await open_provider(asked, "sk-secret", outbound, SystemClock())
    try:
        yield opened.provider, vendor
    finally:
        await opened.provider.close()
        await outbound.close()
        await vendor.stop()
