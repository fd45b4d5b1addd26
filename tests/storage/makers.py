"""Values that the store's tests are made of."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from terraflow.core.types import Instant
from terraflow.ports.store import BudgetLine, BudgetUse, Entry, KeyClaim, Reservation, StoredAnswer

NOW = Instant(1_796_000_000_000_000)
HOUR = 3_600_000_000

_numbers = itertools.count(1)


class SetClock:
    """A clock that a test sets."""

    def __init__(self, now: int = NOW) -> None:
        self.time = now

    def now(self) -> Instant:
        return Instant(self.time)

    def monotonic(self) -> float:
        return self.time / 1e6

    async def sleep(self, seconds: float) -> None:
        self.time += int(seconds * 1e6)
        await asyncio.sleep(0)


def request_id() -> str:
    return f"req_{next(_numbers):032x}"


def entry(request: str, kind: str = "intent", *, tenant: str = "acme", application: str = "app") -> Entry:
    return Entry(
        tenant, application, request, kind, b'{"kind":"%s","request":"%s"}' % (kind.encode(), request.encode())
    )


def line(limit: int | None = None, *, level: str = "tenant", of: str = "acme", tenant: str = "acme") -> BudgetLine:
    return BudgetLine(tenant, level, of, "month", "2026-11", limit)


def reservation(
    request: str, amount: int, *lines: BudgetLine, attempt: int = 1, chargeable: bool = True, tenant: str = "acme"
) -> Reservation:
    return Reservation(f"{request}/{attempt}", request, tenant, "cap", amount, chargeable, lines)


def claim(request: str, *, key: str = "k" * 64, body: str = "b" * 64, application: str = "app") -> KeyClaim:
    return KeyClaim("acme", application, key, body, request, Instant(NOW + HOUR))


def answer(
    request: str, data: bytes = b"the answer", *, cache_key: str | None = None, tenant: str = "acme"
) -> StoredAnswer:
    return StoredAnswer(tenant, request, data, Instant(NOW + HOUR), cache_key, "cap")


def budgets(store: object, tenant: str) -> list[BudgetUse]:
    """A tenant's counters as they are committed."""
    rows = store._database.read("counters_of_tenant", (tenant,))  # type: ignore[attr-defined]
    return [BudgetUse(*row) for row in rows]


def files_with(folder: Path, text: bytes) -> list[str]:
    return [path.name for path in folder.iterdir() if text in path.read_bytes()]
