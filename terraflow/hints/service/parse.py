"""Messages of the wire to words: every rule on what strangers send is applied here, once.

1. What is larger than may be is dropped on ingest, and counted by cause; of a lookup, the lookup's own steps say so.
2. A chain becomes one entry with cumulative counts; a `prefix_hash` beside it is another entry. Arrays of different
   length, or an empty hash in the chain, drop the whole entry; so does an entry without any hash.
3. NaN and infinities in statistics are 0. A tier that is not set is the engine's own memory, one that the contract
   does not know counts as coldest.
4. A large report comes in pieces of at most `PIECE_HASHES`, so that no lookup waits for all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from terraflow.hints.deciding.question import Query
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import BLOCKS_MAX, IDENTIFIER_BYTES_MAX, Entry, Report, Stats, Tier, longer

PIECE_HASHES = 1_024
"""What the index takes in within a millisecond."""
COUNT_MAX = 2**31 - 1
CLIENT_VERSION_BYTES_MAX = 1_024
"""It is kept for every replica, and is no identifier."""

Dropped = Counter[str]
"""Entries and reports that were left out, by cause."""


def _any_longer(*texts: str) -> bool:
    return any(longer(text, IDENTIFIER_BYTES_MAX) for text in texts)


def parse_query(request: pb.LookupRouteRequest, *, foreign: bool) -> Query:
    """The query of a LookupRoute; what in it is larger than may be is for the lookup to say, and not copied whole."""
    return Query(
        tenant=request.tenant_id,
        model=request.model_id,
        scheme=request.hash_scheme,
        adapter=request.adapter_id,
        prefix_hash=request.prefix_hash,
        prefix_token_count=request.prefix_token_count,
        block_hashes=request.block_hashes[: BLOCKS_MAX + 1],
        block_token_counts=request.block_token_counts[: BLOCKS_MAX + 1],
        token_ids=request.token_ids,
        prompt_text=request.prompt_text,
        ttft_ms=request.slo.ttft_ms,
        foreign=foreign,
    )


def parse_reports(update: pb.CacheStateUpdate, now_us: int, dropped: Dropped) -> Iterator[Report]:
    """The reports that one update makes, in order; `now_us` is the server's wall clock. Statistics come first."""
    replica, model, tenant, scheme = update.replica_id, update.model_id, update.tenant_id, update.hash_scheme
    if not (replica and model and tenant):
        dropped["incomplete"] += 1
        return
    if _any_longer(replica, model, tenant, scheme, update.adapter_id):
        dropped["oversize"] += 1
        return
    skew_s = (update.timestamp_us - now_us) / 1e6 if update.timestamp_us else 0.0
    stats = parse_stats(update.stats) if update.HasField("stats") else None
    if not scheme and update.prefixes:
        dropped["no_scheme"] += len(update.prefixes)
    found = _entries(update, dropped) if scheme else iter(())
    for entries in _pieces(found):
        yield Report(
            replica=replica, model=model, tenant=tenant, scheme=scheme, entries=entries, stats=stats, skew_s=skew_s
        )
        stats = None
    if stats is not None:
        yield Report(replica=replica, model=model, tenant=tenant, scheme=scheme, stats=stats, skew_s=skew_s)


def parse_stats(said: pb.ReplicaStats) -> Stats:
    """A replica's statistics (rule 3). Its id is the update's, whatever is written inside."""
    version = said.client_version
    return Stats(
        cache_memory_bytes=said.cache_memory_bytes,
        hit_rate=_finite(said.hit_rate),
        pressure=_finite(said.pressure),
        client_version="" if longer(version, CLIENT_VERSION_BYTES_MAX) else version,
        t2_hit_tokens=said.t2_hit_tokens,
        t2_query_tokens=said.t2_query_tokens,
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def parse_tier(tier: int) -> int:
    """The index's tier of a wire tier (rule 3)."""
    if tier == Tier.UNSPECIFIED:
        return Tier.MEMORY
    return tier if Tier.MEMORY <= tier <= Tier.REMOTE else Tier.UNKNOWN


def _entries(update: pb.CacheStateUpdate, dropped: Dropped) -> Iterator[Entry | None]:
    """The good ones; None for each that is dropped, as reading it took its time, too."""
    for prefix in update.prefixes:
        adapter = prefix.adapter_id or update.adapter_id
        tier = parse_tier(prefix.tier)
        hashes, counts, whole = prefix.block_hashes[:], prefix.block_token_counts[:], prefix.prefix_hash
        cause = _fault(hashes, counts, whole, adapter)
        if cause:
            dropped[cause] += 1
            yield None
            continue
        if hashes:
            yield Entry(adapter, hashes, cumulative(counts), tier)
        if whole:
            yield Entry(adapter, [whole], [prefix.token_count], tier)


def _fault(hashes: list[bytes], counts: list[int], whole: bytes, adapter: str) -> str:
    """Why an entry is dropped whole; empty for a good one."""
    if len(hashes) != len(counts):
        return "mismatched_arrays"
    if not hashes and not whole:
        return "empty_entry"
    if len(hashes) > BLOCKS_MAX or longer(adapter, IDENTIFIER_BYTES_MAX) or len(whole) > IDENTIFIER_BYTES_MAX:
        return "oversize"
    if hashes:
        sizes = [*map(len, hashes)]
        if min(sizes) == 0:
            return "empty_hash"
        if max(sizes) > IDENTIFIER_BYTES_MAX:
            return "oversize"
    return ""


def cumulative(counts: Sequence[int]) -> list[int]:
    """Token counts up to and including each block, within what an int32 holds."""
    sums = [*accumulate(counts)]
    if max(sums) > COUNT_MAX or min(sums) < -COUNT_MAX:
        return [min(max(count, -COUNT_MAX), COUNT_MAX) for count in sums]
    return sums


def _pieces(entries: Iterator[Entry | None]) -> Iterator[tuple[Entry, ...]]:
    """Entries in groups of at most `PIECE_HASHES` hashes; a longer chain is cut, its counts go on.

    As many dropped entries end a group as well: a message of nothing else gives others their turn, too.
    """
    piece: list[Entry] = []
    room = PIECE_HASHES
    for entry in entries:
        if entry is None:
            room -= 1
            if room == 0:
                yield tuple(piece)
                piece, room = [], PIECE_HASHES
            continue
        start, size = 0, len(entry.hashes)
        while size - start > room:
            end = start + room
            piece.append(entry._replace(hashes=entry.hashes[start:end], counts=entry.counts[start:end]))
            yield tuple(piece)
            piece, room, start = [], PIECE_HASHES, end
        piece.append(entry if start == 0 else entry._replace(hashes=entry.hashes[start:], counts=entry.counts[start:]))
        room -= size - start
        if room == 0:
            yield tuple(piece)
            piece, room = [], PIECE_HASHES
    if piece:
        yield tuple(piece)
