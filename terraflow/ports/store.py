"""Durable state, as verbs.

1. Every verb that returns MUST have made its effect durable first (it survives kill -9 and, with a disk that honours
   fsync, a power cut), except `note`, which MUST NOT wait.
2. A verb is all or nothing: leaves, money, keys and answers given to one call are in one transaction.
3. A verb MUST raise `StoreUnavailable` when its effect is not known to be durable, and MUST NOT retry a failed fsync
   on the same file handle.
4. Entries of one tenant MUST get consecutive indexes in commit order, starting at 0; an index is never reused.
5. A reservation MUST be refused, wholly, unless reserved + posted + amount <= limit holds on every line that has a
   limit. It resolves at most once: posted or voided.
6. Nothing of another tenant or application is ever returned: an id that is not the caller's answers like one that
   does not exist.
7. Verbs MUST be safe to call from any number of tasks at once.
8. A verb once called runs to its end even if its caller is cancelled meanwhile; a caller that must know whether it
   took effect shields it from cancellation.
9. A verb that contradicts what is stored (a reservation resolved twice or unknown, an id used twice) MUST raise
   `StoreConflict` and have no effect; it is a fault of the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from terraflow.core.types import Instant


class StoreUnavailable(Exception):
    """The effect could not be made durable. Governance fails closed on it."""


class StoreConflict(Exception):
    """The verb contradicts what is stored; it had no effect."""


class Entry(msgspec.Struct, frozen=True):
    """One leaf to append to a tenant's log: `kind` is `intent`, `outcome` or `feedback`, `data` its
    canonical JSON."""

    tenant: str
    application: str
    request_id: str
    kind: str
    data: bytes


class BudgetLine(msgspec.Struct, frozen=True):
    """One counter that a reservation touches: `limit` None counts without limiting.

    `level` and `window` are the labels of `contracts.bundle`; `window_key` is e.g. `2026-11` or `2026-11-30T14`.
    """

    tenant: str
    level: str
    of: str
    window: str
    window_key: str
    limit: int | None


class Reservation(msgspec.Struct, frozen=True):
    """Money set aside for one attempt, in micro-dollars. `id` is unique for ever: `<request id>/<attempt>`.

    `chargeable` says whether a paid call may start once it is reserved: an orphan of it is posted, else voided.
    """

    id: str
    request_id: str
    tenant: str
    capability: str
    amount: int
    chargeable: bool
    lines: tuple[BudgetLine, ...]


class Reserved(msgspec.Struct, frozen=True):
    """Every line had room."""


class NoRoom(msgspec.Struct, frozen=True):
    """A line had none; nothing was reserved and nothing was appended."""

    level: str
    window: str


class Settlement(msgspec.Struct, frozen=True):
    """How a reservation ends: `posted` micro-dollars, or None to void it."""

    reservation_id: str
    posted: int | None


class Claimed(msgspec.Struct, frozen=True):
    """The key is this request's now."""


class Held(msgspec.Struct, frozen=True):
    """Another request holds the key and has not finished."""

    request_id: str


class Conflicting(msgspec.Struct, frozen=True):
    """The key was used for another request body."""


class Finished(msgspec.Struct, frozen=True):
    """The key's request has finished; `answer` is None when its answer is no longer stored."""

    request_id: str
    status: int
    reason: str
    answer: bytes | None


Claim = Claimed | Held | Conflicting | Finished


class KeyClaim(msgspec.Struct, frozen=True):
    """An idempotency key as claimed: `key` and `body_digest` are SHA-256 digests in hexadecimal."""

    tenant: str
    application: str
    key: str
    body_digest: str
    request_id: str
    expires_at: Instant


class KeyOutcome(msgspec.Struct, frozen=True):
    """How a claimed key ends. `keep` False frees it for a retry."""

    tenant: str
    application: str
    key: str
    request_id: str
    keep: bool
    status: int
    reason: str


class StoredAnswer(msgspec.Struct, frozen=True):
    """An answer's bytes, kept for replay or for the response cache until `expires_at`.

    `cache_key` None: only the idempotency key of the same request may find it. `producer` is the capability.
    `original` names the request whose stored answer this is a copy of: it counts as old as that one, is erased with it,
    and is not kept at all once that one has been erased.
    """

    tenant: str
    request_id: str
    data: bytes
    expires_at: Instant
    cache_key: str | None
    producer: str
    original: str | None = None


class CachedAnswer(msgspec.Struct, frozen=True):
    """What the response cache holds."""

    request_id: str
    producer: str
    data: bytes


class KeyHolder(msgspec.Struct, frozen=True):
    """Whose API key it is."""

    tenant: str
    application: str
    key_id: str


class ApiKey(msgspec.Struct, frozen=True):
    """An application's key as stored: never the key, only its SHA-256 digest in hexadecimal."""

    id: str
    tenant: str
    application: str
    digest: str
    created_at: Instant


class RecordedEntry(msgspec.Struct, frozen=True):
    """A leaf as it stands in the log."""

    index: int
    kind: str
    data: bytes


class Orphan(msgspec.Struct, frozen=True):
    """A request that has not ended: its intent is in the log and its outcome is not, or a reservation of it is open, or
    it holds an idempotency key without an outcome.

    `entry` is its newest leaf: its intent, or an outcome that left a reservation open; None if it has none.
    `open_reservations` are those not yet resolved, `reservations` counts all that it ever made, and `settled` is what
    the resolved ones were posted at; `keyed` names the idempotency key it holds, if any.
    """

    entry: RecordedEntry | None
    tenant: str
    application: str
    request_id: str
    open_reservations: tuple[Reservation, ...]
    reservations: int
    settled: int
    keyed: str | None


class Erased(msgspec.Struct, frozen=True):
    """How many stored answers an erasure removed, and pieces of batches."""

    answers: int


class BudgetUse(msgspec.Struct, frozen=True):
    """A counter as it stands, micro-dollars."""

    tenant: str
    level: str
    of: str
    window: str
    window_key: str
    reserved: int
    posted: int


class Store(Protocol):
    """What the plane asks of its database. Amounts are micro-dollars."""

    async def find_key(self, digest: str) -> KeyHolder | None:
        """The holder of the API key with this digest, unless it is revoked or unknown."""
        ...

    async def active_sequence(self) -> int:
        """The sequence number of the envelope activated last, 0 before the first."""
        ...

    async def active_bundle(self) -> bytes | None:
        """The envelope activated last, None before the first."""
        ...

    async def claim(self, claim: KeyClaim, now: Instant) -> Claim:
        """Take an idempotency key or say who has it. An expired holder's key is free."""
        ...

    async def begin(self, entries: Sequence[Entry], reservation: Reservation | None) -> Reserved | NoRoom:
        """Append the intent and reserve the first attempt, in one transaction. NoRoom appends nothing."""
        ...

    async def reserve(self, reservation: Reservation) -> Reserved | NoRoom:
        """Reserve a further attempt's worst case."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """Resolve reservations before the request ends (a failed attempt). Resolving twice MUST raise StoreConflict."""
        ...

    async def finish(
        self,
        entries: Sequence[Entry],
        settlements: Sequence[Settlement] = (),
        answer: StoredAnswer | None = None,
        key: KeyOutcome | None = None,
    ) -> None:
        """Append the outcome, resolve what is still reserved, keep the answer, end the key; one transaction.
        Of a request that has ended already, append what is said of it since.

        An answer MAY be left out, or older ones dropped for it, where the store's bound on answers is reached.
        """
        ...

    def note(self, entries: Sequence[Entry]) -> None:
        """Append without waiting: sheds and rate refusals. MUST be durable with the next transaction or within
        a second, and before a drained process exits."""
        ...

    def behind(self) -> bool:
        """Whether so much noted waits to be durable that nothing should begin of which more may come. MUST be True well
        before `note` raises for want of room, MUST NOT wait or raise."""
        ...

    async def find_answer(self, tenant: str, cache_key: str, now: Instant) -> CachedAnswer | None:
        """The response cache's answer, unless expired or erased."""
        ...

    async def find_entries(self, tenant: str, application: str, request_id: str) -> Sequence[RecordedEntry]:
        """The leaves of one request, in order; empty when it is not this application's."""
        ...

    async def erase(
        self, *, tenant: str | None = None, request_id: str | None = None, before: Instant | None = None
    ) -> Erased:
        """Remove stored answers: of one request, its copies among them, or created before an instant, or already
        expired (neither). The results of batches and the files given for them go alike; what a batch has yet to run
        stays."""
        ...

    async def prune(self) -> int:
        """Remove what has served its time and is not the log's: resolved reservations, counters of past hours,
        superseded bundles; how many rows. MUST leave what is open."""
        ...

    async def orphans(self) -> Sequence[Orphan]:
        """Every request that has not ended; on a running plane those in flight are among them."""
        ...

    async def drain(self) -> None:
        """Return once every verb that was called before has ended, and every note is durable."""
        ...

    async def close(self) -> None:
        """Make everything noted durable and let go of the files. Idempotent."""
        ...
