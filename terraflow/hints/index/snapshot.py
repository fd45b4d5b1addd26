"""The index in pieces and back: ages, not times; the order of arrival is kept, all of it before what is new.

What comes back was on a disk: a row that no index can have written is left out, since the hot table takes every number
at its word.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from terraflow.hints.index.arrivals import ARRIVALS_FROM
from terraflow.hints.index.places import Holding, Space, Tenant
from terraflow.hints.index.register import Register
from terraflow.hints.index.said import Piece, Row
from terraflow.hints.words import Stats, Tier

KEYS_A_PIECE = 256
STATS_A_PIECE = 256
_INT_MAX = (1 << 31) - 1
_TIER_MAX = int(Tier.UNKNOWN)
_HASH_BYTES_MAX, _DIGEST_BYTES = 64, 32
_ORDER_MAX = float(1 << 52)
_AHEAD_S_MAX = 600.0
"""What came while a dump went on is younger than the dump, by as much as that took."""


def pieces(register: Register, now: float) -> Iterator[Piece]:
    """A tenant's statistics, then its keys by arrival. Keys that keep moving meanwhile end the walk, not it them."""
    until = register.table.arrivals
    for tenant in list(register.tenants.values()):
        yield from _statistics(tenant, until, now)
        table = register.table
        left = 2 * tenant.keys + KEYS_A_PIECE
        after = tenant.first
        while after and left > 0:
            table.cursor = after
            rows = table.rows(KEYS_A_PIECE)
            after = table.cursor
            left -= KEYS_A_PIECE
            if rows:
                yield _piece(tenant, rows, until, now)
                after = table.cursor
        table.cursor = 0


def _statistics(tenant: Tenant, until: float, now: float) -> Iterator[Piece]:
    told: list[tuple[str, str, Stats, float]] = []
    for place in tenant.places.values():
        told += [
            (place.model, source.replica, source.stats, now - source.stats_at)
            for source in place.sources.values()
            if source.stats is not None and source.stats_at is not None
        ]
    for start in range(0, len(told), STATS_A_PIECE):
        yield Piece(tenant=tenant.name, until=until, stats=told[start : start + STATS_A_PIECE])


_Found = list[tuple[Holding, Space, bytes, bool, int, int, float, int, float]]


def _piece(tenant: Tenant, found: _Found, until: float, now: float) -> Piece:
    piece = Piece(tenant=tenant.name, until=until)
    spaces: dict[Space, int] = {}
    replicas: dict[str, int] = {}
    last: tuple[Space, bytes, bool] | None = None
    for holding, space, sought, digest, count, tier, seen, credits, place in found:  # noqa: A001
        if space not in spaces:
            spaces[space] = len(spaces)
            piece.spaces.append((space.place.model, space.scope.scheme, space.adapter))
        replica = holding.source.replica
        if replica not in replicas:
            replicas[replica] = len(replicas)
            piece.replicas.append(replica)
        if last != (space, sought, digest):
            last = (space, sought, digest)
            if digest:
                piece.digests.append(len(piece.hashes))
            piece.hashes.append(sought)
            piece.key_spaces.append(spaces[space])
        degraded = place <= holding.source.mark
        key = len(piece.hashes) - 1
        piece.rows.append(Row(key, replicas[replica], count, tier, now - seen, credits, place, degraded))
    return piece


def put_back(register: Register, piece: Piece, now: float) -> None:
    """Put one piece back."""
    if not -_ORDER_MAX < piece.until < _ORDER_MAX:
        return
    for model, replica, stats, age_s in piece.stats:
        if not -_AHEAD_S_MAX <= age_s < inf:
            continue
        source = register.source(piece.tenant, model, replica)
        if source is not None and source.stats is None:
            source.stats, source.stats_at = stats, now - age_s
            source.heard_at = max(source.heard_at, now - age_s)
    digests = set(piece.digests)
    for row in piece.rows:
        if not _is_sound(piece, row, row.key in digests):
            continue
        model, scheme, adapter = piece.spaces[piece.key_spaces[row.key]]
        source = register.source(piece.tenant, model, piece.replicas[row.replica])
        where = None if source is None else register.where(source, scheme, adapter)
        if source is None or where is None:
            continue
        space, holding = where
        if space.tenant.keys_max == 0:
            continue
        source.heard_at = max(source.heard_at, now - row.age_s)
        place = ARRIVALS_FROM - piece.until + row.order
        key = piece.hashes[row.key]
        seen = now - row.age_s
        new = register.table.bring_back(
            space, holding, key, row.key in digests, row.tokens, row.tier, seen, row.credits, place
        )
        register.told(source.place, now)
        register.table.keep_quota(space.tenant, 8)
        if new and row.degraded and place > source.mark:
            source.mark = place
            for each in source.holdings:
                register.table.marks[each.number] = place


def _is_sound(piece: Piece, row: Row, digest: bool) -> bool:
    """Whether an index can have written the row."""
    key = row.key
    if not (0 <= key < min(len(piece.hashes), len(piece.key_spaces)) and 0 <= row.replica < len(piece.replicas)):
        return False
    size = len(piece.hashes[key])
    return (
        0 <= piece.key_spaces[key] < len(piece.spaces)
        and (size == _DIGEST_BYTES if digest else 1 <= size <= _HASH_BYTES_MAX)
        and -_INT_MAX <= row.tokens <= _INT_MAX
        and 1 <= row.tier <= _TIER_MAX
        and 0 <= row.credits <= _INT_MAX
        and -_AHEAD_S_MAX <= row.age_s < inf
        and -_ORDER_MAX < row.order < _ORDER_MAX
    )
