"""A process that writes under load until it is killed, and tells each acknowledgement as it gets it.

    python -m tests.storage.killed_writer FOLDER SEED [careless]

A line of standard output is what the store has acknowledged: `begun ID AMOUNT`, `done ID POSTED` (or `void`), `noted`
is never told. Whatever was told before the kill must be there after it. A careless writer does not wait for the disk:
the fault that a judge of power cuts must catch.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sqlite3
import sys
from pathlib import Path
from typing import Any

from terraflow.ports.store import BudgetLine, Entry, Reservation, Reserved, Settlement
from terraflow.storage.sqlite.connection import Connect
from terraflow.storage.sqlite.store import SqliteStore, open_store
from tests.storage.makers import SetClock

TENANTS = ("acme", "globex")
CALLERS = 16


async def caller(store: SqliteStore, chance: random.Random) -> None:
    tenant = chance.choice(TENANTS)
    while True:
        request, amount = "req_" + secrets.token_hex(16), chance.randint(0, 1_000)
        lines = (
            BudgetLine(tenant, "workload", "w", "hour", "2026-11-30T14", None),
            BudgetLine(tenant, "tenant", tenant, "month", "2026-11", 10**15),
        )
        intent = Entry(tenant, "app", request, "intent", chance.randbytes(chance.randint(10, 3_000)))
        wanted = Reservation(f"{request}/1", request, tenant, "cap", amount, chance.random() < 0.5, lines)
        assert await store.begin((intent,), wanted) == Reserved()
        tell(f"begun {request} {amount}")
        if chance.random() < 0.1:
            store.note((Entry(tenant, "app", request + "n", "outcome", b"noted"),))
        posted = chance.choice([None, chance.randint(0, amount)])
        outcome = Entry(tenant, "app", request, "outcome", chance.randbytes(chance.randint(10, 1_000)))
        await store.finish((outcome,), (Settlement(wanted.id, posted),))
        tell(f"done {request} {'void' if posted is None else posted}")


def tell(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def careless(path: str, **options: Any) -> sqlite3.Connection:
    class Connection(sqlite3.Connection):
        def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
            return super().execute(statement.replace("synchronous=FULL", "synchronous=NORMAL"), *parameters)

    return sqlite3.connect(path, factory=Connection, **options)


async def main(folder: Path, seed: int, connect: Connect) -> None:
    store = open_store(folder, clock=SetClock(), connect=connect)
    tell("up")
    await asyncio.gather(*(caller(store, random.Random(seed * 1_000 + number)) for number in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), careless if sys.argv[3:] else sqlite3.connect))
