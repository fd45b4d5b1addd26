"""Lookups larger than prompts are: in turns, a few of an address, and never what is beyond the limits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from terraflow.core.reasons import Lookup
from terraflow.hints.blocks import block_keys
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.http2.call import Call, Peer
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.service.identity import Identities
from terraflow.hints.service.large import BLOCKS_A_TURN, LARGE_BLOCKS, OF_AN_ADDRESS_MAX, is_large, keys_in_turns
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.parse import parse_query
from terraflow.hints.service.rpcs import HintService
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import BLOCKS_MAX, TOKEN_IDS_MAX, Entry, Report
from tests.hints.turns import others_turns
from tests.storage.makers import SetClock

TOKENS = list(range(70_000))
KEYS = block_keys(TOKENS)


def service() -> HintService:
    live = LiveHints(Grounds(index=Index()), SetClock())
    held = Entry("", KEYS[:64], [16 * (at + 1) for at in range(64)], 1)
    other = Entry("", [b"other"], [1], 1)
    for replica, entry in (("a", held), ("b", other)):
        live.ingest(Report(replica=replica, model="m", tenant="t", scheme="s", entries=(entry,)))
    return HintService(live, Identities(), Metrics(live.index), report_streams_max=1, watch_streams_max=1)


def call(address: str = "10.0.0.1", deadline: float | None = None) -> Call:
    head: Any = SimpleNamespace(metadata=())
    return Call("/", head, Peer(address), deadline)


def asked(**given: Any) -> pb.LookupRouteRequest:
    return pb.LookupRouteRequest(tenant_id="t", model_id="m", hash_scheme="s", **given)


def chain(blocks: int) -> pb.LookupRouteRequest:
    hashes = [*KEYS, *(at.to_bytes(8, "big") for at in range(blocks - len(KEYS)))][:blocks]
    return asked(block_hashes=hashes, block_token_counts=[16] * blocks)


async def test_large_ones_are_answered_as_small_ones_would_be() -> None:
    hints = service()
    for request in (chain(LARGE_BLOCKS + 1), asked(token_ids=TOKENS)):
        later = hints.lookup_later(request, call())
        assert later is not None
        answer = await later
        at_once = hints.lookup_route(request, call())
        at_once.lookup_latency_us = answer.lookup_latency_us
        assert answer == at_once
        assert [(row.replica_id, row.matched_tokens) for row in answer.replica_scores] == [("a", 1_024)]
    assert hints.lookup_later(chain(LARGE_BLOCKS), call()) is None
    assert hints.lookup_later(asked(token_ids=TOKENS[:100]), call()) is None


async def test_one_address_gets_a_few_at_a_time_and_others_theirs() -> None:
    hints = service()
    request = asked(token_ids=TOKENS)

    async def ask(address: str) -> str:
        later = hints.lookup_later(request, call(address))
        assert later is not None
        return (await later).reason_code

    reasons = await asyncio.gather(*(ask("10.0.0.1") for _ in range(6)), ask("10.0.0.2"))
    assert reasons.count(Lookup.PREFIX_MATCH) == OF_AN_ADDRESS_MAX + 1 and reasons[-1] == Lookup.PREFIX_MATCH
    assert reasons.count(Lookup.NO_HINT) == hints.metrics.refused["large"] == 6 - OF_AN_ADDRESS_MAX
    assert await ask("10.0.0.1") == Lookup.PREFIX_MATCH


async def test_who_waits_past_the_deadline_is_told_so() -> None:
    hints = service()
    late = hints.lookup_later(asked(token_ids=TOKENS), call(deadline=hints.live.clock.monotonic()))
    assert late is not None
    assert (await late).reason_code == Lookup.TIMEOUT


async def test_others_have_their_turns_while_keys_are_made() -> None:
    async with others_turns() as turns:
        assert await keys_in_turns(TOKENS, 16) == KEYS
    assert turns.number >= len(KEYS) // BLOCKS_A_TURN
    for tokens in (0, 15, 16, 17, BLOCKS_A_TURN * 16, BLOCKS_A_TURN * 16 + 15):
        assert await keys_in_turns(TOKENS[:tokens], 16) == block_keys(TOKENS[:tokens])


def test_what_is_beyond_the_limits_is_not_copied_and_has_no_hint() -> None:
    hints = service()
    many = asked(block_hashes=[b""] * (BLOCKS_MAX + 5_000))
    for request in (many, asked(token_ids=[1] * (TOKEN_IDS_MAX + 1))):
        assert not is_large(request)
        assert hints.lookup_route(request, call()).reason_code == Lookup.NO_HINT
    assert len(parse_query(many, foreign=False).block_hashes) == BLOCKS_MAX + 1
