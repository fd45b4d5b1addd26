"""From an engine's own block hashes to the contract's keys, and back for what it removes.

1. A key is chained from the parent's. Blocks whose parent nobody knows are *orphans*: they are dropped and the caller
   is told, since a chain that began there would claim a prefix that nobody has.
2. What cannot be keyed is remembered as such, so that its children are no orphans: blocks whose hash holds more than
   tokens (images, salts), blocks without tokens, part blocks. It never reaches the index.
3. A block counts as held while any medium holds it; the warmest is its tier.
4. Of a hybrid model only the groups that keep whole prefixes count (`MAIN_KINDS`).
5. The number of blocks is bounded: the oldest is forgotten, and withdrawn from the index with it, since its removal
   could no longer be understood. Orphans after that are of our own making and no gap.
6. A batch is taken in by pieces of some 1 024 blocks; between two of them everything is as if the first were all of it.
7. The adapter is the LoRA's name, where the engine gives one; else the configured name of its id; an id that has none
   is dropped and counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from collections.abc import Mapping as Table
from typing import NamedTuple

import msgspec

from terraflow.hints.blocks import prefix_hashes, wire
from terraflow.hints.events.parse import Batch, Cleared, Removed, Stored
from terraflow.hints.events.positions import MAIN_KINDS
from terraflow.hints.words import Entry, Tier

# fmt: off
TIERS: dict[str, Tier] = {
    "GPU":        Tier.MEMORY,
    "HBM":        Tier.MEMORY,
    "CPU":        Tier.OFFLOADED,
    "CPU_PINNED": Tier.OFFLOADED,
    "CPU_TIER1":  Tier.OFFLOADED,
    "CPU_TIER2":  Tier.OFFLOADED,
    "DRAM":       Tier.OFFLOADED,
    "DISK":       Tier.OFFLOADED,
    "SSD":        Tier.OFFLOADED,
    "NVME":       Tier.OFFLOADED,
    "STORAGE":    Tier.OFFLOADED,
    "REMOTE":     Tier.REMOTE,
    "EXTERNAL":   Tier.REMOTE,
}
# fmt: on
"""An engine that names no medium means its own memory; a medium that this table lacks is taken for the coldest."""

_BITS = {Tier.MEMORY: 1, Tier.OFFLOADED: 2, Tier.REMOTE: 4}
_WARMEST = (0, 1, 2, 1, 3, 1, 2, 1)
"""By the bits of the media that hold a block: its tier."""


Block = tuple[int, int, str, int]
"""Key, tokens up to its end, adapter, bits of the media that hold it; tokens are `_UNKEYED` where there is no key.
Plain tuples: the garbage collector lets go of those, and there may be a million."""

_UNKEYED = -1
PIECE_BLOCKS = 1_024
"""What is mapped, and taken in by the index, in a few ms."""
EVENT_BLOCKS = 8
"""An event costs as much as so many blocks."""
DUMPED_TOGETHER = 8_192
_NOTHING: Block = (0, _UNKEYED, "", 0)


class Holds(NamedTuple):
    """The index is to hold these."""

    entries: tuple[Entry, ...]


class Evicts(NamedTuple):
    """The index is to drop these."""

    adapter: str
    hashes: list[bytes]


class Clears(NamedTuple):
    """The index is to drop everything of the replica."""


Write = Holds | Evicts | Clears


class Counters(msgspec.Struct, kw_only=True):
    """What has been dropped, and why."""

    blocks_stored: int = 0
    blocks_removed: int = 0
    clears: int = 0
    orphans: int = 0
    lora_unmapped: int = 0
    unkeyed: int = 0
    other_groups: int = 0
    unknown_removals: int = 0
    unknown_media: int = 0
    forgotten: int = 0
    unknown_tags: int = 0
    unknown_fields: int = 0


class Mapping:
    """One source's blocks by the engine's hash."""

    def __init__(self, *, loras: Table[int, str] | None = None, blocks_max: int = 262_144) -> None:
        self.counters = Counters()
        self.orphaned = False
        """Whether a parent was unknown to the last batch that should have been known."""
        self._loras = dict(loras or {})
        self._blocks_max = blocks_max
        self._blocks: dict[bytes, Block] = {}
        self._others: set[int] = set()
        self._entries: list[Entry] = []
        self._tail: bytes | None = None
        self._writes: list[Write] = []
        self._forgetful = False

    def __len__(self) -> int:
        return len(self._blocks)

    def pieces(self, batch: Batch) -> Iterator[list[Write]]:
        """Take a batch in by pieces, one or more: the writes of each, in their order."""
        self.counters.unknown_tags += batch.unknown_tags
        self.counters.unknown_fields += batch.unknown_fields
        self._writes, self._entries, self.orphaned = [], [], False
        done = 0
        for event in batch.events:
            if isinstance(event, Cleared):
                self.counters.clears += 1
                self.empty()
                self._writes, self._entries, self.orphaned = [Clears()], [], False
            else:
                for blocks in self._store(event) if isinstance(event, Stored) else self._remove(event):
                    done += blocks
                    if done >= PIECE_BLOCKS:
                        yield self._written()
                        done = 0
            self._tail = self._tail if type(event) is Stored else None
            done += EVENT_BLOCKS
        while (beyond := len(self._blocks) - self._blocks_max) > 0:
            self._flush()
            self._forget(min(beyond, PIECE_BLOCKS))
            if beyond > PIECE_BLOCKS:
                yield self._written()
        yield self._written()
        self._tail = None

    def _written(self) -> list[Write]:
        self._flush()
        writes, self._writes = self._writes, []
        return writes

    def empty(self) -> None:
        """Forget everything: the engine has."""
        self._blocks.clear()
        self._others.clear()
        self._forgetful = False

    def known(self) -> list[Entry]:
        """Everything that is held."""
        return self.entries(self._blocks)

    def hashes(self) -> list[bytes]:
        """The engine's hashes of what is held, in the order they came."""
        return list(self._blocks)

    def entries(self, hashes: Iterable[bytes]) -> list[Entry]:
        """Those of these that are held, a tier and adapter at a time, for who has to be told again."""
        found: dict[tuple[str, int], Entry] = {}
        for engine_hash in hashes:
            key, tokens, adapter, media = self._blocks.get(engine_hash, _NOTHING)
            if tokens != _UNKEYED:
                at = (adapter, _WARMEST[media])
                entry = found.get(at)
                if entry is None:
                    entry = found[at] = Entry(at[0], [], [], at[1])
                entry.hashes.append(wire(key))
                entry.counts.append(tokens)
        return list(found.values())

    # Storing

    def _store(self, event: Stored) -> Iterator[int]:
        """In pieces, each told by how many blocks it had; so are the others."""
        if not self._of_main_group(event.group, event.kind):
            self.counters.other_groups += len(event.hashes)
            return
        adapter = self._adapter(event)
        if adapter is None:
            self.counters.lora_unmapped += len(event.hashes)
            return
        bit = self._bit(event.medium, event.remote)
        if not event.token_ids:
            yield from self._again(event.hashes, bit)
            return
        parent = None if event.parent is None else self._blocks.get(event.parent)
        if parent is None and event.parent is not None:
            self._orphan(len(event.hashes))
            return
        whole = 0
        if not event.salted and (parent is None or parent[1] != _UNKEYED):
            whole = min(len(event.hashes), len(event.token_ids) // event.block_tokens, self._plain(event, adapter))
        above, token_ids, size = event.parent, event.token_ids, event.block_tokens
        for at in range(0, whole, PIECE_BLOCKS):
            engine_hashes = event.hashes[at : min(at + PIECE_BLOCKS, whole)]
            until = at + len(engine_hashes)
            parent = self._key(engine_hashes, token_ids[at * size : until * size], size, parent, above, adapter, bit)
            above = engine_hashes[-1]
            yield len(engine_hashes)
        for at in range(whole, len(event.hashes), PIECE_BLOCKS):
            rest = event.hashes[at : at + PIECE_BLOCKS]
            self.counters.unkeyed += len(rest)
            for engine_hash in rest:
                before = self._blocks.get(engine_hash)
                self._blocks[engine_hash] = (0, _UNKEYED, "", bit if before is None else before[3] | bit)
            yield len(rest)

    def _key(
        self,
        engine_hashes: list[bytes],
        token_ids: array[int],
        size: int,
        parent: Block | None,
        above: bytes | None,
        adapter: str,
        bit: int,
    ) -> Block:
        """Blocks that follow on `parent`, the engine's `above`, all with their tokens. Returns the last."""
        tokens = 0 if parent is None else parent[1]
        keys = prefix_hashes(token_ids, size, None if parent is None else parent[0])
        counts = list(range(tokens + size, tokens + size * len(keys) + 1, size))
        blocks = self._blocks
        self.counters.blocks_stored += len(keys)
        last = (keys[-1], counts[-1], adapter, bit)
        if blocks.keys().isdisjoint(engine_hashes):
            for engine_hash, key, count in zip(engine_hashes, keys, counts, strict=True):
                blocks[engine_hash] = (key, count, adapter, bit)
            self._hold(above, engine_hashes[-1], Entry(adapter, list(map(wire, keys)), counts, _WARMEST[bit]))
            return last
        for engine_hash, key, count in zip(engine_hashes, keys, counts, strict=True):
            before = blocks.get(engine_hash)
            media = bit if before is None else before[3] | bit
            blocks[engine_hash] = (key, count, adapter, media)
            self._hold(above, engine_hash, Entry(adapter, [wire(key)], [count], _WARMEST[media]))
            above = engine_hash
        return last

    def _hold(self, above: bytes | None, last: bytes, entry: Entry) -> None:
        """Have the index hold an entry, as one with that before it where it goes on from that."""
        before = self._entries[-1] if self._entries else None
        if before is not None and self._tail == above and before.adapter == entry.adapter and before.tier == entry.tier:
            before.hashes.extend(entry.hashes)
            before.counts.extend(entry.counts)
        else:
            self._entries.append(entry)
        self._tail = last

    def _again(self, hashes: Sequence[bytes], bit: int) -> Iterator[int]:
        """An engine that stores blocks without their tokens: known ones are now held by one more medium."""
        for at in range(0, len(hashes), PIECE_BLOCKS):
            some = hashes[at : at + PIECE_BLOCKS]
            for engine_hash in some:
                block = self._blocks.get(engine_hash)
                if block is None:
                    self.counters.unkeyed += 1
                    self._blocks[engine_hash] = (0, _UNKEYED, "", bit)
                else:
                    self._move(engine_hash, block, block[3] | bit)
            yield len(some)

    def _move(self, engine_hash: bytes, block: Block, media: int) -> None:
        key, tokens, adapter, before = block
        self._blocks[engine_hash] = (key, tokens, adapter, media)
        if tokens != _UNKEYED and _WARMEST[media] != _WARMEST[before]:
            self._entries.append(Entry(adapter, [wire(key)], [tokens], _WARMEST[media]))
            self._tail = None

    def _orphan(self, blocks: int) -> None:
        self.counters.orphans += blocks
        if not self._forgetful:
            self.orphaned = True

    # Removing

    def _remove(self, event: Removed) -> Iterator[int]:
        if event.group is not None and event.group in self._others:
            self.counters.other_groups += len(event.hashes)
            return
        self._flush()
        bit = self._bit(event.medium, event.remote)
        for at in range(0, len(event.hashes), PIECE_BLOCKS):
            some = event.hashes[at : at + PIECE_BLOCKS]
            self._drop(some, bit)
            yield len(some)

    def _drop(self, hashes: list[bytes], bit: int) -> None:
        gone: dict[str, list[bytes]] = {}
        for engine_hash in hashes:
            block = self._blocks.get(engine_hash)
            if block is None:
                self.counters.unknown_removals += 1
                continue
            left = block[3] & ~bit
            if left:
                self._move(engine_hash, block, left)
                continue
            del self._blocks[engine_hash]
            self.counters.blocks_removed += 1
            if block[1] != _UNKEYED:
                gone.setdefault(block[2], []).append(wire(block[0]))
        self._flush()
        self._writes.extend(Evicts(adapter, hashes) for adapter, hashes in gone.items())

    def _forget(self, number: int) -> None:
        self._forgetful = True
        gone: dict[str, list[bytes]] = {}
        for engine_hash in [name for name, _ in zip(self._blocks, range(number), strict=False)]:
            key, tokens, adapter, _ = self._blocks.pop(engine_hash)
            self.counters.forgotten += 1
            if tokens != _UNKEYED:
                gone.setdefault(adapter, []).append(wire(key))
        self._writes.extend(Evicts(adapter, hashes) for adapter, hashes in gone.items())

    def _flush(self) -> None:
        if self._entries:
            self._writes.append(Holds(tuple(self._entries)))
            self._entries = []

    # What an event is about

    def _of_main_group(self, group: int | None, kind: str | None) -> bool:
        if kind is None or kind in MAIN_KINDS:
            return True
        if group is not None and len(self._others) < 1_024:
            self._others.add(group)
        return False

    def _adapter(self, event: Stored) -> str | None:
        if event.lora_name:
            return event.lora_name
        if event.lora_id is None:
            return ""
        return self._loras.get(event.lora_id)

    def _plain(self, event: Stored, adapter: str) -> int:
        """How many leading blocks have nothing but tokens, and the adapter, in their hash."""
        for at, extra in enumerate(event.extras):
            if extra and extra != [adapter]:
                return at
        return len(event.hashes)

    def _bit(self, medium: str | None, remote: bool) -> int:
        if remote:
            return _BITS[Tier.REMOTE]
        if medium is None:
            return _BITS[Tier.MEMORY]
        tier = TIERS.get(medium.upper())
        if tier is None:
            self.counters.unknown_media += 1
            tier = Tier.REMOTE
        return _BITS[tier]

    # Across a restart of this service

    def dump(self) -> Generator[None, None, MappingState]:
        """Everything as it is at the first step, as columns of bytes, in steps of a few ms."""
        held = list(self._blocks.items())
        others, forgetful = sorted(self._others), self._forgetful
        hashes, media = bytearray(), bytearray()
        lengths, keys, tokens, adapters = array("I"), array("Q"), array("q"), array("I")
        names: dict[str, int] = {}
        for at in range(0, len(held), DUMPED_TOGETHER):
            yield
            some = held[at : at + DUMPED_TOGETHER]
            hashes += b"".join([name for name, _ in some])
            lengths.extend([len(name) for name, _ in some])
            keys.extend([block[0] for _, block in some])
            tokens.extend([block[1] for _, block in some])
            adapters.extend([names.setdefault(block[2], len(names)) for _, block in some])
            media += bytes([block[3] for _, block in some])
        return MappingState(
            hashes=bytes(hashes),
            lengths=lengths.tobytes(),
            keys=keys.tobytes(),
            tokens=tokens.tobytes(),
            adapters=adapters.tobytes(),
            media=bytes(media),
            names=list(names),
            others=others,
            forgetful=forgetful,
        )

    def restore(self, state: MappingState) -> None:
        """Take up what `dump` gave. Raises ValueError for what it never gives."""
        lengths, keys, tokens, adapters = array("I"), array("Q"), array("q"), array("I")
        columns = ((lengths, state.lengths), (keys, state.keys), (tokens, state.tokens), (adapters, state.adapters))
        for column, raw in columns:
            column.frombytes(raw)
        if sum(lengths) != len(state.hashes):
            raise ValueError("hashes and their lengths disagree")
        self._others, self._forgetful = set(state.others), state.forgetful
        at = 0
        for length, key, count, name, media in zip(lengths, keys, tokens, adapters, state.media, strict=True):
            if not (0 < media < len(_WARMEST) and name < len(state.names) and count >= _UNKEYED):
                raise ValueError("a block that no dump holds")
            self._blocks[state.hashes[at : at + length]] = (key, count, state.names[name], media)
            at += length


class MappingState(msgspec.Struct, kw_only=True):
    """A mapping at rest: columns in this machine's byte order; tokens −1 marks a block that has no key."""

    hashes: bytes = b""
    lengths: bytes = b""
    keys: bytes = b""
    tokens: bytes = b""
    adapters: bytes = b""
    media: bytes = b""
    names: list[str] = []
    others: list[int] = []
    forgetful: bool = False
