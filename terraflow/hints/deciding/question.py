"""What a lookup asks, and which of its inputs counts.

1. Explicit hashes come first, then token ids, then the prompt's text.
2. A chain whose arrays differ in length, or with an empty hash in it, is malformed.
3. With chain matching off a chain is passed over, and token ids are known by their last whole block.
4. What exceeds a limit is not looked at, whichever input would have counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from terraflow.hints.blocks import block_keys
from terraflow.hints.words import BLOCKS_MAX, IDENTIFIER_BYTES_MAX, PROMPT_TEXT_BYTES_MAX, TOKEN_IDS_MAX, longer


class Query(msgspec.Struct, kw_only=True):
    """A LookupRouteRequest, parsed. `block_token_counts[i]` is the tokens of block i alone.

    `foreign`: the caller is bound to tenants and this is none of them.
    """

    tenant: str
    model: str
    scheme: str
    adapter: str = ""
    prefix_hash: bytes = b""
    prefix_token_count: int = 0
    block_hashes: Sequence[bytes] = ()
    block_token_counts: Sequence[int] = ()
    token_ids: Sequence[int] = ()
    prompt_text: str = ""
    ttft_ms: int = 0
    foreign: bool = False
    keys: Sequence[bytes] | None = None
    """The keys of its token ids, or of what its text became, for who has made them before."""


class Tokenizers(Protocol):
    """The tokenizers that models have."""

    def prompt(self, model: str, text: str) -> Sequence[int] | None:
        """`text` as one user message, ready for generation; None when that is not to be had. Never raises."""
        ...


class Input(NamedTuple):
    """What is looked up: a chain, else an exact hash, else nothing."""

    hashes: Sequence[bytes] = ()
    counts: Sequence[int] = ()
    exact: bytes = b""
    tokens: int = 0
    """What the request says it holds: the sum of the chain's counts, else prefix_token_count."""
    chain: bool = False
    echo: Sequence[int] = ()
    """The token ids that a prompt's text became, also when nothing can be looked up by them."""
    fault: str = ""
    """Why nothing can be looked up."""


def well_formed(query: Query) -> bool:
    """Whether its chain, which may be empty, is one; rule 2."""
    hashes = query.block_hashes
    return len(hashes) == len(query.block_token_counts) and all(hashes)


def too_large(query: Query) -> str:
    """Which limit a query exceeds, or nothing."""
    if len(query.block_hashes) > BLOCKS_MAX or len(query.block_token_counts) > BLOCKS_MAX:
        return "too many blocks"
    if len(query.token_ids) > TOKEN_IDS_MAX:
        return "too many token ids"
    if len(query.prefix_hash) > IDENTIFIER_BYTES_MAX:
        return "prefix_hash is too long"
    for text, most, what in (
        (query.prompt_text, PROMPT_TEXT_BYTES_MAX, "prompt_text is too long"),
        (query.tenant, IDENTIFIER_BYTES_MAX, "tenant_id is too long"),
        (query.model, IDENTIFIER_BYTES_MAX, "model_id is too long"),
        (query.scheme, IDENTIFIER_BYTES_MAX, "hash_scheme is too long"),
        (query.adapter, IDENTIFIER_BYTES_MAX, "adapter_id is too long"),
    ):
        if longer(text, most):
            return what
    return ""


def read_input(query: Query, chain_matching: bool, tokenizer: Tokenizers | None, block_tokens: int) -> Input:
    """What to look up, or the fault that forbids it."""
    if excess := too_large(query):
        return Input(fault=excess)
    chained = bool(query.block_hashes or query.block_token_counts)
    if chained and chain_matching:
        if not well_formed(query):
            return Input(fault=_malformed(query))
        counts = query.block_token_counts
        return Input(query.block_hashes, counts, query.prefix_hash, sum(counts), True)
    if query.prefix_hash:
        return Input(exact=query.prefix_hash, tokens=query.prefix_token_count)
    if query.token_ids:
        return _fingerprint(query, query.token_ids, chain_matching, block_tokens)
    if query.prompt_text:
        token_ids = tokenizer.prompt(query.model, query.prompt_text) if tokenizer is not None else None
        if not token_ids or len(token_ids) > TOKEN_IDS_MAX:
            return Input(fault="no tokenizer here could read the text for the model")
        return _fingerprint(query, token_ids, chain_matching, block_tokens)._replace(echo=token_ids)
    if chained:
        return Input(fault="chain matching is off, and there is no other input")
    return Input(tokens=query.prefix_token_count)


def _malformed(query: Query) -> str:
    hashes, counts = len(query.block_hashes), len(query.block_token_counts)
    if hashes != counts:
        return f"the chain has {hashes} block_hashes and {counts} block_token_counts: give one count for each hash"
    return f"the chain has an empty hash, number {list(query.block_hashes).index(b'') + 1}"


def _fingerprint(query: Query, token_ids: Sequence[int], chain_matching: bool, block_tokens: int) -> Input:
    try:
        keys = block_keys(token_ids, block_tokens) if query.keys is None else query.keys
    except OverflowError:
        return Input(fault="a token id is no uint32")
    if not keys:
        return Input(fault="the tokens are less than a block")
    tokens = len(keys) * block_tokens
    if not chain_matching:
        return Input(exact=keys[-1], tokens=tokens)
    return Input(keys, [block_tokens] * len(keys), keys[-1], tokens, True)
