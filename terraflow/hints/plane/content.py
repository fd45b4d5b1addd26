"""Prompts known by blocks of their text: the plane's own scheme, for fleets without a tokenizer.

1. The text is the request's tools and messages as JSON with sorted keys, tools first, as chat templates put them: two
   requests that begin alike in it begin alike in every engine's cache.
2. A block is a stretch of bytes, four to a token, the usual mean of English text; its hash is XXH3-64 with the hash of
   the block before it as seed, eight bytes big-endian. A part block at the end has none.
3. No engine reports under this scheme. The plane does, when an engine has worked on a prompt: see `unreported` in
   `ports.hints` and docs/adr/0016-fleets.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import xxhash

from terraflow.ports.hints import Prefix

SCHEME = "terraflow-content-1"
BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 128
"""Coarser than an engine's: a block costs half a microsecond, and a match of less is below the usual floor anyway."""
BLOCK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN
BLOCKS_MAX = 512
"""A quarter of a megabyte: what goes beyond is not looked at."""

_encode = msgspec.json.Encoder(order="sorted").encode
_COUNTS = (BLOCK_TOKENS,) * BLOCKS_MAX


class ContentPrefixes:
    """The prefixes of one fleet's prompts; see `ports.hints.Prefixes`."""

    def __init__(self, *, tenant: str, model: str, adapter: str) -> None:
        self._tenant = tenant
        self._model = model
        self._adapter = adapter

    async def prefix(self, document: Mapping[str, Any], timeout_s: float) -> Prefix | None:
        """The prompt's blocks."""
        del timeout_s
        try:
            text = prompt_text(document)
        except (ValueError, TypeError, RecursionError):
            return None
        hashes = content_hashes(text)
        return Prefix(
            tenant=self._tenant,
            model=self._model,
            scheme=SCHEME,
            adapter=self._adapter,
            hashes=hashes,
            counts=_COUNTS[: len(hashes)],
            tokens=len(text) // BYTES_PER_TOKEN,
            unreported=True,
        )


def prompt_text(document: Mapping[str, Any]) -> bytes:
    """What of a request is in its prompt (rule 1)."""
    tools = document.get("tools")
    parts = [] if tools is None else [_encode(tools)]
    messages = document.get("messages")
    parts += [_encode(message) for message in messages] if isinstance(messages, list) else []
    return b"".join(parts)


def content_hashes(text: bytes) -> list[bytes]:
    """The chained hashes of a text's whole blocks (rule 2)."""
    hashed, hashes = 0, []
    digest = xxhash.xxh3_64_intdigest
    for at in range(0, min(len(text) // BLOCK_BYTES, BLOCKS_MAX) * BLOCK_BYTES, BLOCK_BYTES):
        hashed = digest(text[at : at + BLOCK_BYTES], hashed)
        hashes.append(hashed.to_bytes(8, "big"))
    return hashes
