"""How many blocks a second a feed brings from bytes into the live hints: decoding, mapping and ingest, on one core.

    python -m bench.hints_feed [--quick]

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

from bench.report import number, table
from terraflow.app.runtime import SystemClock
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.events.steps import ended
from terraflow.hints.feed.mapping import Mapping as Blocks
from terraflow.hints.feed.source import Source, read_frame
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.words import Scope

FIGURE = 200_000
BLOCKS = 200_000
SCOPE = Scope("tenant", "model", "scheme")
BLOCK_TOKENS = 16
CASES = ((512, 1, True), (32, 1, True), (8, 4, True), (1, 64, False))
"""Blocks an event, events a batch, and whether the figure is asked of it."""
NAMES = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")


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


def rate(blocks: int, together: int, events: int) -> float:
    """Blocks a second of CPU time."""
    sent = payloads(blocks, together, events)
    live = LiveHints(Grounds(index=Index()), SystemClock())
    source = Source(live, SCOPE, "engine", mapping=Blocks(blocks_max=blocks * 2))
    began = time.process_time()
    for sequence, payload in enumerate(sent):
        ended(source.steps(source.stream.live(read_frame(sequence, payload))))
    return len(source.mapping) / (time.process_time() - began)


def measure(*, quick: bool = False) -> dict[str, float]:
    """Every case by what it is."""
    blocks = BLOCKS // 4 if quick else BLOCKS
    return {said(together, events): rate(blocks, together, events) for together, events, _ in CASES}


def said(together: int, events: int) -> str:
    """A case in words."""
    return f"blocks taken in, {together} an event, {events} events a batch"


def missed(found: Mapping[str, float]) -> list[str]:
    """The cases below the figure that is asked of them."""
    return [said(*case) for *case, asked in CASES if asked and found[said(*case)] < FIGURE]


def report(found: Mapping[str, float]) -> str:
    """The rates as a Markdown table."""
    below = missed(found)
    rows = []
    for *case, asked in CASES:
        name = said(*case)
        bound = f"≥ {number(FIGURE)} /s" if asked else ""
        rows.append([name, bound, number(found[name]), ("missed" if name in below else "reached") if asked else ""])
    return table(["a feed, from bytes into the index", "to reach", "measured", ""], rows)


def main(arguments: Sequence[str]) -> int:
    """The command; 1 when a figure is missed."""
    parser = argparse.ArgumentParser(prog="bench.hints_feed", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the blocks")
    found = measure(quick=parser.parse_args(arguments).quick)
    print(report(found))
    return int(bool(missed(found)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
