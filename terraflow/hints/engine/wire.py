"""KV events as engines put them on the wire: msgpack, in the forms that have been seen of vLLM and SGLang.

1. A batch is an array [ts, events, data_parallel_rank?] or a map; so is each event, by its position or by "type".
2. An array says everything in its place; a map leaves out what is none.

Source of the formats: vLLM's kv_events.py and SGLang's, over the versions that changed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from terraflow.hints.engine.blocks import Block, HashForm, shown

GPU, CPU = "GPU", "CPU"


class Encoding(StrEnum):
    """Batch, then event."""

    ARRAYS = "array"
    MAPS = "map"
    ARRAY_OF_MAPS = "array-of-maps"
    MAP_OF_ARRAYS = "map-of-arrays"


class Stored(NamedTuple):
    """Blocks that follow each other are there now."""

    blocks: Sequence[Block]
    medium: str


class Removed(NamedTuple):
    """Blocks are gone from a medium."""

    hashes: Sequence[bytes]
    medium: str


class Cleared(NamedTuple):
    """Nothing is left."""


Event = Stored | Removed | Cleared


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How this engine writes."""

    encoding: Encoding = Encoding.ARRAYS
    hashes: HashForm = HashForm.INT
    rank: int | None = None
    """None: not said."""
    loras: dict[str, int] = {}
    """Ids of adapters by name."""
    lora_names: bool = True
    """Whether the name is said beside the id."""


_ENCODER = msgspec.msgpack.Encoder()
_FIELDS = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")


def encode(events: Sequence[Event], form: Form, stamp_s: float) -> bytes:
    """One batch; `stamp_s` is the engine's wall clock."""
    maps = form.encoding in (Encoding.MAPS, Encoding.ARRAY_OF_MAPS)
    written = [_map(event, form) if maps else _array(event, form) for event in events]
    if form.encoding in (Encoding.MAPS, Encoding.MAP_OF_ARRAYS):
        batch: Any = {"ts": stamp_s, "events": written}
        if form.rank is not None:
            batch["data_parallel_rank"] = form.rank
    else:
        batch = [stamp_s, written] if form.rank is None else [stamp_s, written, form.rank]
    return _ENCODER.encode(batch)


def _array(event: Event, form: Form) -> list[Any]:
    if isinstance(event, Stored):
        return ["BlockStored", *_stored(event, form)]
    if isinstance(event, Removed):
        return ["BlockRemoved", [shown(each, form.hashes) for each in event.hashes], event.medium]
    return ["AllBlocksCleared"]


def _map(event: Event, form: Form) -> dict[str, Any]:
    if isinstance(event, Stored):
        named = zip(_FIELDS, _stored(event, form), strict=True)
        return {"type": "BlockStored", **{name: value for name, value in named if value is not None}}
    if isinstance(event, Removed):
        hashes = [shown(each, form.hashes) for each in event.hashes]
        return {"type": "BlockRemoved", "block_hashes": hashes, "medium": event.medium}
    return {"type": "AllBlocksCleared"}


def _stored(event: Stored, form: Form) -> tuple[Any, ...]:
    first = event.blocks[0]
    return (
        [shown(block.hash, form.hashes) for block in event.blocks],
        None if first.parent is None else shown(first.parent, form.hashes),
        [token for block in event.blocks for token in block.tokens],
        len(first.tokens),
        form.loras.get(first.adapter),
        event.medium,
        first.adapter if first.adapter and form.lora_names else None,
    )
