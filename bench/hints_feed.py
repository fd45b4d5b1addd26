"""How many blocks a second a feed brings from bytes into the index: decoding, mapping and ingest, on one core.

    python -m bench.hints_feed [--blocks 200000]

Figure: 200 000 blocks a second in batches as engines send them (a prefill step stores many blocks in one event). Events
of a single block, as decoding stores them, are shown beside it. CPU time, not wall time. Exits 1 below the figure.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence

import msgspec

from terraflow.hints.feed.mapping import Mapping as Blocks
from terraflow.hints.feed.source import Source, read_frame
from terraflow.hints.index.index import Index
from terraflow.hints.words import Report, Scope, Stats

FIGURE = 200_000
SCOPE = Scope("tenant", "model", "scheme")
BLOCK_TOKENS = 16
CASES = ((512, 1, True), (32, 1, True), (8, 4, True), (1, 64, False))
"""Blocks an event, events a batch, and whether the figure is asked of it."""
NAMES = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")


class IndexSink:
    """The index, without a clock."""

    def __init__(self) -> None:
        self.index = Index()

    def ingest(self, report: Report) -> object:
        """Into the index."""
        return self.index.ingest(report, 1.0)

    def evict_many(self, scope: Scope, replica: str, adapter: str | None, hashes: Sequence[bytes]) -> object:
        """Out of the index."""
        return self.index.evict_many(scope, replica, adapter, list(hashes), 1.0)

    def clear(self, tenant: str, model: str, replica: str) -> object:
        """Out of the index, all of it."""
        return self.index.clear(tenant, model, replica, 1.0)

    def degrade(self, tenant: str, model: str, replica: str) -> None:
        """Marked in the index."""
        self.index.degrade(tenant, model, replica, 1.0)

    def heal(self, tenant: str, model: str, replica: str) -> None:
        """Unmarked in the index."""
        self.index.heal(tenant, model, replica)

    def stats(self, tenant: str, model: str, replica: str, stats: Stats) -> None:
        """Into the index."""
        self.ingest(Report(replica=replica, model=model, tenant=tenant, scheme="", stats=stats))

    def register(self, tenant: str, model: str, replica: str, labels: Mapping[str, str]) -> None:
        """No topology asks here."""


def payloads(blocks: int, together: int, events: int) -> list[bytes]:
    """Batches that store so many blocks, as maps with hashes of 32 bytes."""
    rng = random.Random(1)
    made: list[bytes] = []
    at = 0
    while at < blocks:
        batch = []
        for _ in range(events):
            hashes = [(at + number).to_bytes(32, "big") for number in range(together)]
            at += together
            tokens = [rng.randrange(150_000) for _ in range(BLOCK_TOKENS * together)]
            values = (hashes, None, tokens, BLOCK_TOKENS, None, "GPU", None)
            batch.append({"type": "BlockStored", **dict(zip(NAMES, values, strict=True))})
        made.append(msgspec.msgpack.encode([1.0, batch, None]))
    return made


def measure(blocks: int, together: int, events: int) -> float:
    """Blocks a second of CPU time."""
    sent = payloads(blocks, together, events)
    source = Source(IndexSink(), SCOPE, "engine", mapping=Blocks(blocks_max=blocks * 2))
    began = time.process_time()
    for sequence, payload in enumerate(sent):
        source.live(read_frame(sequence, payload))
    return len(source.mapping) / (time.process_time() - began)


def main(arguments: Sequence[str]) -> int:
    """Measure every case."""
    parser = argparse.ArgumentParser(prog="bench.hints_feed", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=200_000)
    given = parser.parse_args(arguments)
    short = False
    for together, events, asked in CASES:
        rate = measure(given.blocks, together, events)
        short = short or (asked and rate < FIGURE)
        wanted = f"at least {FIGURE:,}" if asked else "no figure"
        print(
            f"{together:4d} blocks an event, {events:2d} events a batch: {rate:9,.0f} blocks/s ({wanted})", flush=True
        )
    return int(short)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
