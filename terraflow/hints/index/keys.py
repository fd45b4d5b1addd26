"""Keys in flat memory: a bucket, a row, and the bytes of a hash.

1. A row of 32 bytes, one view a field: its word, the next in its bucket, its spot (space and kind of hash), its first
   entry, its code, its neighbours by arrival among its tenant's keys. Beside it the slots of its last credit and of the
   last but one, which untouched cost nothing.
2. Hashes of 8 bytes are a word, up to 64 bytes lie in cells of 32, longer ones are kept as their SHA-256.
3. The number of buckets is fixed by the cap. Codes come from Python's own keyed hash, so that nobody can choose hashes
   that meet in one bucket.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from terraflow.hints.index.memory import region
from terraflow.hints.index.places import Place, Space, Tenant

WORD_BYTES = 8
CELL_BYTES = 32
KEPT_BYTES_MAX = 64
SPARSE = 2
"""Buckets a key: a second key in a bucket is one more wait for memory."""
SPREAD = 2654435761
CODE_MAX = 0x7FFFFFFF


class Keys:
    """See the module. Number 0 is no key and no cell."""

    def __init__(self, keys_max: int) -> None:
        size = 64
        while size < keys_max * SPARSE:
            size <<= 1
        self.mask = size - 1
        self.buckets = region("i", size)
        table = region("B", keys_max * 32)
        rows = table.cast("i")
        self.words = table.cast("Q")[0::4]
        self.k_chain = rows[2::8]
        self.k_spot = rows[3::8]
        self.k_head = rows[4::8]
        self.k_code = rows[5::8]
        self.k_prev = rows[6::8]
        self.k_next = rows[7::8]
        self.k_slot = region("i", keys_max)
        self.k_slot_before = region("i", keys_max)
        self.cells = region("B", keys_max * 2 * CELL_BYTES)
        self.cell_next = region("i", keys_max * 2)
        self.k_top = self.c_top = 1
        self.k_free = self.c_free = 0
        self.keys = 0
        self.spot = self.code = 0
        self.sought = b""
        self.cursor = 0
        self.empty: list[Any] = []

    def find(self, space: int, sought: bytes) -> int:
        """A space's key with this hash, or 0. Leaves what a new key is made of in `spot`, `code` and `sought`."""
        size = len(sought)
        kind = 0
        if size != WORD_BYTES:
            kind = 1
            if size > KEPT_BYTES_MAX:
                kind = 2
                sought = sha256(sought).digest()
        return self._find(space << 2 | kind, sought)

    def _code(self, spot: int, sought: bytes) -> int:
        return (hash(sought) ^ (spot * SPREAD)) & CODE_MAX

    def _find(self, spot: int, sought: bytes) -> int:
        self.spot = spot
        self.code = self._code(spot, sought)
        self.sought = sought
        return self._seek(spot, sought, self.code)

    def _seek(self, spot: int, sought: bytes, code: int) -> int:
        key: int = self.buckets[code & self.mask]
        if spot & 3:
            while key and not (self.k_code[key] == code and self.k_spot[key] == spot and self._same(key, sought)):
                key = self.k_chain[key]
            return key
        word = word_of(sought)
        while key and not (self.words[key] == word and self.k_spot[key] == spot):
            key = self.k_chain[key]
        return key

    def _same(self, key: int, sought: bytes) -> bool:
        size = len(sought)
        if self.words[key] & 0xFF != size:
            return False
        cell = self.words[key] >> 8
        at = 0
        text = sought
        while at < size:
            base = cell * CELL_BYTES
            end = min(size - at, CELL_BYTES)
            i = 0
            while i < end:
                if self.cells[base + i] != text[at + i]:
                    return False
                i += 1
            at += CELL_BYTES
            cell = self.cell_next[cell]
        return True

    def _make_key(self, space: Space) -> int:
        key = self.k_free
        if key:
            self.k_free = self.k_chain[key]
        else:
            key = self.k_top
            self.k_top = key + 1
        at = self.code & self.mask
        self.k_code[key] = self.code
        self.k_chain[key] = self.buckets[at]
        self.buckets[at] = key
        self.k_spot[key] = self.spot
        self.k_head[key] = 0
        self.k_slot[key] = 0
        self.k_slot_before[key] = 0
        self.words[key] = self._keep(self.sought) if self.spot & 3 else word_of(self.sought)
        self._queue(key, space.tenant)
        self.keys += 1
        space.keys += 1
        space.place.keys += 1
        space.tenant.keys += 1
        return key

    def _keep(self, text: bytes) -> int:
        size = len(text)
        first = 0
        at = ((size - 1) // CELL_BYTES) * CELL_BYTES
        while at >= 0:
            cell = self.c_free
            if cell:
                self.c_free = self.cell_next[cell]
            else:
                cell = self.c_top
                self.c_top = cell + 1
            base = cell * CELL_BYTES
            end = min(size - at, CELL_BYTES)
            i = 0
            while i < end:
                self.cells[base + i] = text[at + i]
                i += 1
            self.cell_next[cell] = first
            first = cell
            at -= CELL_BYTES
        return first << 8 | size

    def hash_of(self, key: int) -> bytes:
        """A key's hash; of one longer than 64 bytes, its SHA-256."""
        word = self.words[key]
        if not self.k_spot[key] & 3:
            return int(word).to_bytes(8, "big")
        size = word & 0xFF
        cell = word >> 8
        parts = []
        while cell:
            base = cell * CELL_BYTES
            parts.append(bytes(self.cells[base : base + CELL_BYTES]))
            cell = self.cell_next[cell]
        return b"".join(parts)[:size]

    def _remove_key(self, key: int, space: Space) -> None:
        at = self.k_code[key] & self.mask
        other = self.buckets[at]
        if other == key:
            self.buckets[at] = self.k_chain[key]
        else:
            while self.k_chain[other] != key:
                other = self.k_chain[other]
            self.k_chain[other] = self.k_chain[key]
        self._unqueue(key, space.tenant)
        place = space.place
        if self.k_slot_before[key]:
            self._cool(place, self.k_slot_before[key])
        if self.k_spot[key] & 3:
            first = last = self.words[key] >> 8
            while self.cell_next[last]:
                last = self.cell_next[last]
            self.cell_next[last] = self.c_free
            self.c_free = first
        self.keys -= 1
        place.keys -= 1
        space.tenant.keys -= 1
        space.keys -= 1
        if space.keys == 0:
            self.empty.append(space)
        self.k_spot[key] = 0
        self.k_chain[key] = self.k_free
        self.k_free = key

    def _cool(self, place: Place, slot: int) -> None:
        if slot >= place.hot_from:
            left = place.hot.get(slot, 0) - 1
            if left > 0:
                place.hot[slot] = left
            else:
                place.hot.pop(slot, None)

    def _queue(self, key: int, tenant: Tenant) -> None:
        self.k_prev[key] = tenant.last
        self.k_next[key] = 0
        if tenant.last:
            self.k_next[tenant.last] = key
        else:
            tenant.first = key
        tenant.last = key

    def _unqueue(self, key: int, tenant: Tenant) -> None:
        before = self.k_prev[key]
        after = self.k_next[key]
        if key == self.cursor:
            self.cursor = after
        if before:
            self.k_next[before] = after
        else:
            tenant.first = after
        if after:
            self.k_prev[after] = before
        else:
            tenant.last = before


def word_of(sought: bytes) -> int:
    """Eight bytes as a number, the first the greatest."""
    text = sought
    word = text[0]
    word = word << 8 | text[1]
    word = word << 8 | text[2]
    word = word << 8 | text[3]
    word = word << 8 | text[4]
    word = word << 8 | text[5]
    word = word << 8 | text[6]
    return word << 8 | text[7]
