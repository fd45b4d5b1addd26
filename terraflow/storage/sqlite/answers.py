"""Stored answers, sealed when a key is configured.

1. Every column of an answer's row but its age is bound by its seal, so that an answer cannot be moved to another
   tenant, request or cache key, nor live longer. What does not open counts as not stored.
2. All answers together have at most so many bytes as the plane allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from terraflow.core.types import Instant
from terraflow.ports.store import CachedAnswer, StoredAnswer
from terraflow.storage.sqlite.connection import Database, Row
from terraflow.storage.sqlite.seal import Seal

DATA, CREATED_AT = 3, 4
"""Where a row of `Answers.row` has its bytes and its time."""
OUSTED_MAX = 16
"""Answers that may go for a new one: `secure_delete` overwrites each, inside the transaction."""


class Answers:
    """Keeping and finding answers."""

    def __init__(self, database: Database, seal: Seal, bytes_max: int) -> None:
        self._database = database
        self._bytes_max = bytes_max
        self._seal = seal

    def row(self, answer: StoredAnswer, created_at: Instant) -> tuple[Any, ...]:
        """What `keep` writes; sealing happens here, before the transaction."""
        bound = _bound(
            answer.tenant, answer.request_id, answer.expires_at, answer.cache_key, answer.producer, answer.original
        )
        return (
            answer.tenant,
            answer.request_id,
            self._seal.sealed,
            self._seal.close(answer.data, bound),
            created_at,
            answer.expires_at,
            answer.cache_key,
            answer.producer,
            answer.original,
        )

    def keep(self, row: Sequence[Any]) -> None:
        """Inside a transaction. An answer of the same request stands already: sqlite3.IntegrityError.

        A copy takes the age of its original, and is not kept when that is gone. Where there is no room the oldest
        answers go; one for which too many would have to is not kept.
        """
        tenant, *_, original = row
        if original is not None:
            found = self._database.write("age_of_answer", (original, tenant)).fetchone()
            if found is None:
                return
            row = (*row[:CREATED_AT], found[0], *row[CREATED_AT + 1 :])
        if self._make_room(len(row[DATA])):
            self._database.write("add_answer", row)

    def _make_room(self, size: int) -> bool:
        if size > self._bytes_max:
            return False
        for _ in range(OUSTED_MAX):
            (total,) = self._database.write("answer_bytes").fetchone()
            if total + size <= self._bytes_max:
                return True
            self._database.write("drop_oldest_answer")
        return False

    def of_request(self, tenant: str, request_id: str, now: Instant) -> bytes | None:
        """Inside a transaction: the answer's bytes, if it is still stored."""
        row = self._database.write("answer_of_request", (tenant, request_id, now)).fetchone()
        return None if row is None else self._opened(tenant, row)

    def of_cache_key(self, tenant: str, cache_key: str, now: Instant) -> CachedAnswer | None:
        """The newest committed answer under a cache key."""
        rows = self._database.read("answer_of_cache_key", (tenant, cache_key, now))
        if not rows:
            return None
        data = self._opened(tenant, rows[0])
        return None if data is None else CachedAnswer(rows[0][0], rows[0][5], data)

    def _opened(self, tenant: str, row: Row) -> bytes | None:
        request_id, sealed, data, expires_at, cache_key, producer, original = row
        return self._seal.open(
            bool(sealed), data, _bound(tenant, request_id, expires_at, cache_key, producer, original)
        )


def _bound(
    tenant: str, request_id: str, expires_at: int, cache_key: str | None, producer: str, original: str | None
) -> bytes:
    of = () if original is None else (original,)
    return msgspec.json.encode(["terraflow answer 1", tenant, request_id, expires_at, cache_key, producer, *of])
