"""An engine's payload, parsed: bytes to typed events, or one typed failure.

1. `parse_steps` raises `Unreadable` and nothing else, whatever the bytes.
2. A batch is taken whole or not at all: half of one would be a gap that nobody sees.
3. A hash is bytes from here on: an integer, signed or unsigned, its 8 bytes big-endian; a string its UTF-8.
4. A large payload is parsed in steps, and comes to what it would come to at once.
5. What is unknown is skipped and counted in the batch: tags, fields beyond the tables, values of another type there.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from terraflow.hints.events.positions import EVENTS, RANK_NAMES, REQUIRED, STORED
from terraflow.hints.words import BLOCKS_MAX, IDENTIFIER_BYTES_MAX, TOKEN_IDS_MAX

PAYLOAD_BYTES_MAX = 16 << 20
"""A step that prefills a million tokens comes to some 7 MB."""
CONTAINERS_MAX = 1 << 20
"""Lists and maps of a payload, told by the bytes that may begin one: an eighth of what hashes and tokens are made of
looks so, too. A payload of nothing else would become a hundred times its size, in seconds."""
EVENTS_MAX = 1 << 16
STORED_MAX = 1 << 14
"""Runs of stored blocks: of each request in a step there is one, or a few. More would be a pause of the collector's."""
BATCH_BLOCKS_MAX = 1 << 18
BATCH_TOKENS_MAX = 4 * TOKEN_IDS_MAX
"""Of all events of a batch: short hashes and small token ids would become fifty times a payload's size."""
LARGE_BYTES = 1 << 16
"""A payload, and an event, of this size is parsed in steps."""
EVENTS_A_STEP = 64
ITEMS_A_STEP = 8_192
TOKENS_A_STEP = 1 << 16
RANK_MAX = 1 << 16

_NAMES = {tag: frozenset(("type", *table)) for tag, table in EVENTS.items()}
_UINT64 = (1 << 64) - 1
_BIG = struct.Struct(">Q").pack
_decode = msgspec.msgpack.Decoder().decode
_decode_outer = msgspec.msgpack.Decoder(list[Raw] | dict[Any, Raw]).decode
_decode_list = msgspec.msgpack.Decoder(list[Raw]).decode
_LIST_OF_MANY = 0xDD
_INTS = re.compile(
    rb"(?:[\x00-\x7f\xe0-\xff]|\xcd..|\xce....|\xcc.|\xd0.|\xd1..|\xd2....|[\xcf\xd3]........){%d}+" % TOKENS_A_STEP,
    re.DOTALL,
)
"""So many integers of msgpack, to cut a list of a million where one ends: decoding them all takes 25 ms."""
_NO_CONTAINER = bytes(byte for byte in range(256) if not (0x80 <= byte <= 0x9F or 0xDC <= byte <= 0xDF))


class _Hashes(list[bytes]):
    """Hashes that have been looked at."""


class Unreadable(Exception):
    """A payload that is no batch; the text says why, and quotes nothing of it."""


class Stored(NamedTuple):
    """Blocks that follow each other are cached. `token_ids` are 0 … 2³²−1; empty where the engine tells none.

    `extras[i]`: what went into block i's hash beside its tokens; `salted`: something went into all of them.
    """

    hashes: list[bytes]
    parent: bytes | None
    token_ids: array[int]
    block_tokens: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extras: Sequence[object] = ()
    salted: bool = False
    group: int | None = None
    kind: str | None = None
    remote: bool = False


class Removed(NamedTuple):
    """Blocks are gone from a medium."""

    hashes: list[bytes]
    medium: str | None = None
    group: int | None = None
    remote: bool = False


class Cleared(NamedTuple):
    """Everything is gone. An engine that clears one medium is believed to have cleared all: that costs misses only."""


Event = Stored | Removed | Cleared


class Batch(NamedTuple):
    """What one payload holds, in its order. The engine's own time is of no use: clocks differ."""

    events: list[Event]
    rank: int | None = None
    unknown_tags: int = 0
    unknown_fields: int = 0

    @property
    def clears(self) -> bool:
        """Whether it says that everything is gone."""
        return any(type(event) is Cleared for event in self.events)


def parse_steps(payload: bytes | memoryview, large_bytes: int = LARGE_BYTES) -> Generator[None, None, Batch]:
    """The batch of a payload, in steps of some ms; a payload below `large_bytes` is one step. Raises `Unreadable`."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise Unreadable(f"a payload of {len(payload)} bytes; at most {PAYLOAD_BYTES_MAX}")
    if len(payload) > CONTAINERS_MAX and len(bytes(payload).translate(None, _NO_CONTAINER)) > CONTAINERS_MAX:
        raise Unreadable("more lists and maps than a batch has")
    raw: Any
    if len(payload) < large_bytes:
        raw = _decoded(_decode, payload)
    else:
        yield
        raw = _decoded(_decode_outer, payload)
    if isinstance(raw, dict):
        ts, events = raw.get("ts", 0.0), raw.get("events")
        ranks = [_cooked(raw[name]) for name in RANK_NAMES if name in raw]
        rank = next((rank for rank in ranks if rank is not None), None)
        beyond = sum(1 for name in raw if name not in ("ts", "events", "type", *RANK_NAMES))
    elif isinstance(raw, list):
        at = 1 if raw and isinstance(_cooked(raw[0]), str) else 0
        if len(raw) < at + 2:
            raise Unreadable("a batch of too few fields")
        ts, events = raw[at], raw[at + 1]
        rank = _cooked(raw[at + 2]) if len(raw) > at + 2 else None
        beyond = max(0, len(raw) - at - 3)
    else:
        raise Unreadable(f"a batch is a list or a map, not {type(raw).__name__}")
    if type(events) is Raw:
        events = _decoded(_decode_list, events)
        yield
    return (yield from _batch(_cooked(ts), events, rank, beyond, large_bytes))


def _decoded(decode: Callable[[Any], Any], payload: Any) -> Any:
    try:
        return decode(payload)
    except (ValueError, RecursionError, OverflowError, TypeError, MemoryError) as error:
        raise Unreadable(f"no msgpack: {type(error).__name__}") from None


def _cooked(value: Any) -> Any:
    return _decoded(_decode, value) if type(value) is Raw else value


def _batch(ts: Any, events: Any, rank: Any, beyond: int, large_bytes: int) -> Generator[None, None, Batch]:
    if not isinstance(ts, int | float) or not isinstance(events, list):
        raise Unreadable("a batch without a time or a list of events")
    if len(events) > EVENTS_MAX:
        raise Unreadable(f"{len(events)} events; at most {EVENTS_MAX}")
    if rank is not None and not (type(rank) is int and 0 <= rank < RANK_MAX):
        rank, beyond = None, beyond + 1
    parsed: list[Event] = []
    unknown = blocks = tokens = stored = 0
    for number, raw in enumerate(events):
        if type(raw) is Raw:
            if memoryview(raw).nbytes < large_bytes:
                raw = _decoded(_decode, raw)
                if number % EVENTS_A_STEP == EVENTS_A_STEP - 1:
                    yield
            else:
                raw = yield from _large(raw)
        fields, skipped = _fields(raw)
        beyond += skipped
        if fields is None:
            unknown += 1
            continue
        tag, values = fields
        event: Event
        if tag == "BlockStored":
            event, skipped = _stored(values)
            blocks, tokens, stored = blocks + len(event.hashes), tokens + len(event.token_ids), stored + 1
        elif tag == "BlockRemoved":
            event, skipped = _removed(values)
            blocks += len(event.hashes)
        else:
            event, skipped = Cleared(), 0
        beyond += skipped
        before = parsed[-1] if parsed else None
        if type(event) is Removed and type(before) is Removed and before[1:] == event[1:]:
            # Engines tell of each block by itself, of a long prompt's thousands in one batch.
            before.hashes.extend(event.hashes)
        else:
            parsed.append(event)
        if blocks > BATCH_BLOCKS_MAX or tokens > BATCH_TOKENS_MAX or stored > STORED_MAX:
            raise Unreadable(f"{blocks} blocks and {tokens} token ids in {stored} runs, and that is not all")
    return Batch(parsed, rank, unknown, beyond)


def _large(raw: Any) -> Generator[None, None, Any]:
    """A large event, decoded a field at a time; its hashes and token ids are already those of the event."""
    fields = _decoded(_decode_outer, raw)
    yield
    if isinstance(fields, list):
        tag = _cooked(fields[0]) if fields else None
        table = EVENTS.get(tag, ()) if isinstance(tag, str) else ()
        named = zip(("type", *table, *[""] * len(fields)), fields, strict=False)
        listed: list[Any] = []
        for name, field in named:
            listed.append((yield from _field(tag, name, field)))
        return listed
    if not isinstance(fields, dict):
        return _cooked(raw)
    tag = _cooked(fields["type"]) if "type" in fields else None
    for name, field in fields.items():
        fields[name] = yield from _field(tag, name, field)
    return fields


def _field(tag: Any, name: Any, raw: Any) -> Generator[None, None, Any]:
    if name == "token_ids" and tag == "BlockStored":
        token_ids = yield from _token_ids(bytes(raw))
        if token_ids is not None:
            return token_ids
    value = _cooked(raw)
    if not isinstance(value, list) or len(value) < ITEMS_A_STEP or tag not in ("BlockStored", "BlockRemoved"):
        return value
    yield
    if name == "block_hashes":
        if len(value) > BLOCKS_MAX:
            raise Unreadable(f"{len(value)} hashes; at most {BLOCKS_MAX}")
        hashes = _Hashes()
        for at in range(0, len(value), ITEMS_A_STEP):
            hashes += _hashes(value[at : at + ITEMS_A_STEP])
            yield
        return hashes
    return value


def _token_ids(raw: bytes) -> Generator[None, None, array[int] | None]:
    """The ids of a list of integers, some at a time; None: they are something else, or few."""
    if raw[0] != _LIST_OF_MANY or (left := int.from_bytes(raw[1:5], "big")) > TOKEN_IDS_MAX:
        return None
    at, token_ids = 5, array("I")
    while left:
        some = min(left, TOKENS_A_STEP)
        end = len(raw)
        if some < left:
            ints = _INTS.match(raw, at)
            if ints is None:
                return None
            end = ints.end()
        head = bytes((_LIST_OF_MANY,)) + some.to_bytes(4, "big")
        token_ids.extend(_tokens(_decoded(_decode, head + raw[at:end])))
        left, at = left - some, end
        yield
    return token_ids


def _fields(raw: Any) -> tuple[tuple[str, list[Any]] | None, int]:
    """Tag and values in the order of the tag's table, None for an unknown tag; and how many fields lay beyond."""
    tag: Any
    if isinstance(raw, list):
        tag = raw[0] if raw else None
        if not isinstance(tag, str):
            raise Unreadable("an event without a tag")
        table = EVENTS.get(tag)
        if table is None:
            return None, 0
        values = raw[1 : len(table) + 1]
        beyond = max(0, len(raw) - 1 - len(table))
    elif isinstance(raw, dict):
        tag = raw.get("type")
        if not isinstance(tag, str):
            raise Unreadable("an event without a tag")
        table = EVENTS.get(tag)
        if table is None:
            return None, 0
        values = [raw.get(name) for name in table]
        known = len(raw.keys() & _NAMES[tag])
        if table is STORED and raw.get("cache_salt") is not None:
            values[6] = {"cache_salt": raw["cache_salt"], "lora_name": values[6]}
            known += 1
        beyond = len(raw) - known
    else:
        raise Unreadable(f"an event is a list or a map, not {type(raw).__name__}")
    if len(values) < REQUIRED[tag]:
        raise Unreadable(f"{tag} of too few fields")
    values += [None] * (len(table) - len(values))
    return (tag, values), beyond


def _hash(value: Any) -> bytes:
    if type(value) is int:
        return _BIG(value & _UINT64)
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    raise Unreadable(f"a hash is an integer, bytes or a string, not {type(value).__name__}")


def _hashes(values: Any) -> list[bytes]:
    if type(values) is _Hashes:
        return values
    if not isinstance(values, list):
        raise Unreadable("hashes that are no list")
    if len(values) > BLOCKS_MAX:
        raise Unreadable(f"{len(values)} hashes; at most {BLOCKS_MAX}")
    hashes = [_hash(value) for value in values]
    if hashes and (min(map(len, hashes)) == 0 or max(map(len, hashes)) > IDENTIFIER_BYTES_MAX):
        raise Unreadable("a hash that is empty or too long")
    return hashes


def _tokens(values: Any) -> array[int]:
    if values is None:
        return array("I")
    if type(values) is array:
        return values
    if not isinstance(values, list):
        raise Unreadable("token ids that are no list")
    if len(values) > TOKEN_IDS_MAX:
        raise Unreadable(f"{len(values)} token ids; at most {TOKEN_IDS_MAX}")
    if values and isinstance(values[0], list):
        values = [pair[0] if isinstance(pair, list) and pair else None for pair in values]
    try:
        return array("I", values)
    except (TypeError, OverflowError):
        raise Unreadable("a token id outside 0 … 2³²−1") from None


def _text(value: Any) -> tuple[str | None, int]:
    if value is None or (isinstance(value, str) and len(value) <= IDENTIFIER_BYTES_MAX):
        return value or None, 0
    return None, 1


def _stored(values: list[Any]) -> tuple[Stored, int]:
    hashes, parent, token_ids, size, lora_id, medium, name, extras, group, kind, window, locality = values
    if type(size) is not int or not 0 < size <= TOKEN_IDS_MAX:
        raise Unreadable("a block size that is no count of tokens")
    if not (lora_id is None or type(lora_id) is int):
        raise Unreadable("a LoRA id that is no integer")
    keys = _hashes(hashes)
    above = None if parent is None else _hash(parent)
    if name is extras is group is kind is window is locality is None:
        (medium, beyond) = _text(medium)
        return Stored(keys, above, _tokens(token_ids), size, lora_id, medium), beyond
    salted = False
    if isinstance(name, dict):
        salted = name.get("cache_salt") is not None
        name = name.get("lora_name")
    (medium, a), (name, b), (kind, c), (locality, d) = map(_text, (medium, name, kind, locality))
    beyond = a + b + c + d
    if extras is not None and not (isinstance(extras, list) and len(extras) == len(keys)):
        extras, beyond = None, beyond + 1
    if group is not None and type(group) is not int:
        group, beyond = None, beyond + 1
    if window is not None and type(window) is not int:
        beyond += 1
    stored = Stored(
        keys,
        above,
        _tokens(token_ids),
        size,
        lora_id,
        medium,
        name,
        extras or (),
        salted,
        group,
        kind,
        locality == "REMOTE",
    )
    return stored, beyond


def _removed(values: list[Any]) -> tuple[Removed, int]:
    hashes, medium, group, locality = values
    (medium, a), (locality, b) = _text(medium), _text(locality)
    beyond = a + b
    if group is not None and type(group) is not int:
        group, beyond = None, beyond + 1
    return Removed(_hashes(hashes), medium, group, locality == "REMOTE"), beyond
