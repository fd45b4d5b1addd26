"""A service with an assignment memory counts what it answered as sent, whichever input named the prompt; and however a
text comes to its tokens, that takes of the same deadline."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from terraflow.core.reasons import Lookup
from terraflow.hints.blocks import block_keys
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.http2.call import Call, Peer
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.policy.policies import CachePolicy, Policies
from terraflow.hints.service.identity import Identities
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.rpcs import LONG_TEXT, HintService
from terraflow.hints.tokens.loaded import BYTES, LoadedTokenizers, TokenizerFiles
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import Entry, Report, Scope
from tests.storage.makers import SetClock

SCOPE = Scope("t", "m", "s")
TOKENS = list(range(160))
LONG = "a" * LONG_TEXT


class SlowTokenizers:
    """The one of bytes, which takes 5 ms of a clock for every text."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock
        self._bytes = LoadedTokenizers({"m": TokenizerFiles(BYTES)})

    def prompt(self, model: str, text: str) -> Sequence[int] | None:
        self._clock.time += 5_000
        return self._bytes.prompt(model, text)


def service(policies: Policies | None = None) -> HintService:
    clock = SetClock()
    grounds = Grounds(
        index=Index(),
        policies=policies or Policies(),
        tokenizers=SlowTokenizers(clock),
        assigned=Assigned(flight_max_s=10.0),
    )
    live = LiveHints(grounds, clock)
    for replica in ("a", "b"):
        entry = Entry("", [replica.encode()], [16], 1)
        live.ingest(Report(replica=replica, model="m", tenant="t", scheme="s", entries=(entry,)))
    return HintService(
        live, Identities(), Metrics(live.index), remember=True, report_streams_max=1, watch_streams_max=1
    )


async def answered(hints: HintService, **given: Any) -> pb.LookupRouteResponse:
    head: Any = SimpleNamespace(metadata=())
    request, call = (
        pb.LookupRouteRequest(tenant_id="t", model_id="m", hash_scheme="s", **given),
        Call("/", head, Peer("10.0.0.1"), None),
    )
    later = hints.lookup_later(request, call)
    return hints.lookup_route(request, call) if later is None else await later


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ({"block_hashes": block_keys(TOKENS), "block_token_counts": [16] * 10}, 160),
        ({"prefix_hash": b"whole", "prefix_token_count": 100}, 100),
        ({"token_ids": TOKENS}, 160),
        ({"token_ids": list(range(70_000))}, 70_000),
        ({"prompt_text": "a" * 200}, 208),
        ({"prompt_text": LONG}, LONG_TEXT + 16),
    ],
    ids=["chain", "hash", "tokens", "many tokens", "text", "long text"],
)
async def test_what_is_answered_counts_as_sent(given: dict[str, Any], tokens: int) -> None:
    hints = service()
    assigned, now = hints.live.grounds.assigned, hints.live.clock.monotonic()
    assert assigned is not None
    first = await answered(hints, **given)
    assert first.reason_code == Lookup.AFFINITY_HINT
    (chosen,) = (row.replica_id for row in first.replica_scores)
    load = {replica: assigned.load(SCOPE, replica, now) for replica in ("a", "b")}
    assert abs(load.pop(chosen) - tokens) < 32 and set(load.values()) == {0.0}


@pytest.mark.parametrize("text", ["a" * 200, LONG], ids=["short", "long"])
async def test_tokenizing_takes_of_the_policys_deadline(text: str) -> None:
    for allowed_ms, reason in ((4, Lookup.TIMEOUT), (6, Lookup.AFFINITY_HINT)):
        hints = service(Policies(cache={"t": CachePolicy(lookup_timeout_ms=allowed_ms)}))
        assert (await answered(hints, prompt_text=text)).reason_code == reason
