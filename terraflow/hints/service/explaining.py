"""`POST /explain` of the internal listener: one lookup taken apart, asked in JSON with hashes in hexadecimal.

Nothing is changed by it, no credit given, and nothing counted as a lookup.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from terraflow.hints.deciding.explain import Explanation, explain
from terraflow.hints.deciding.question import Query
from terraflow.hints.live import LiveHints
from terraflow.hints.words import BLOCKS_MAX, TOKEN_IDS_MAX

Hex = Annotated[str, Meta(pattern=r"^([0-9a-fA-F]{2})*\Z", description="hexadecimal, two digits a byte")]


class ExplainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A LookupRouteRequest as people write one. The counts of a chain may be left out: each block has `block_tokens`
    then."""

    tenant: str
    model: str
    scheme: str
    adapter: str = ""
    prefix_hash: Hex = ""
    prefix_token_count: int = 0
    block_hashes: Annotated[list[Hex], Meta(max_length=BLOCKS_MAX)] = []
    block_token_counts: Annotated[list[int], Meta(max_length=BLOCKS_MAX)] | None = None
    block_tokens: int = 16
    token_ids: Annotated[list[int], Meta(max_length=TOKEN_IDS_MAX)] = []
    prompt_text: str = ""
    ttft_ms: int = 0

    def query(self) -> Query:
        """The query that it stands for."""
        counts = self.block_token_counts
        return Query(
            tenant=self.tenant,
            model=self.model,
            scheme=self.scheme,
            adapter=self.adapter,
            prefix_hash=bytes.fromhex(self.prefix_hash),
            prefix_token_count=self.prefix_token_count,
            block_hashes=[bytes.fromhex(one) for one in self.block_hashes],
            block_token_counts=[self.block_tokens] * len(self.block_hashes) if counts is None else counts,
            token_ids=self.token_ids,
            prompt_text=self.prompt_text,
            ttft_ms=self.ttft_ms,
        )


def explained(live: LiveHints, asked: ExplainRequest) -> Explanation:
    """Why the lookup would be answered as it would be now."""
    return explain(asked.query(), live.grounds, live.clock.monotonic())
