"""The port kept in this process, what guards it, and prompts known by their text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from terraflow.app.runtime import SystemClock
from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.plane.content import BLOCK_BYTES, SCHEME, ContentPrefixes, content_hashes, prompt_text
from terraflow.hints.plane.guarded import GuardedHints
from terraflow.hints.plane.inside import InsideHints
from terraflow.hints.words import Report, Stats
from terraflow.ports.hints import Hint, Prefix
from tests.hints.plane.test_client import DEADLINE_S, PREFIX


@pytest.fixture
def inside() -> InsideHints:
    return InsideHints(LiveHints(Grounds(index=Index(), assigned=Assigned(), share_min=0.05), SystemClock()))


async def test_inside_a_burst_stays_together_before_anything_is_reported(inside: InsideHints) -> None:
    inside.joined("fleet", "m", "s", ["r0", "r1", "r2"])
    first = await inside.hint(PREFIX, DEADLINE_S)
    assert first.reason in (Lookup.NO_HINT, Lookup.AFFINITY_HINT)
    inside.sent(PREFIX, "r1", 0)
    hint = await inside.hint(PREFIX, DEADLINE_S)
    assert (hint.reason, hint.ranked[0].replica, hint.ranked[0].matched_tokens) == (Lookup.PREFIX_MATCH, "r1", 256)


async def test_inside_an_unreported_prefix_is_known_after_its_call() -> None:
    inside = InsideHints(LiveHints(Grounds(index=Index()), SystemClock()))
    ours = msgspec.structs.replace(PREFIX, unreported=True)
    inside.sent(ours, "r1", 0)
    inside.ended(ours, "r1", held=True)
    hint = await inside.hint(ours, DEADLINE_S)
    assert (hint.reason, hint.ranked[0].replica) == (Lookup.PREFIX_MATCH, "r1")


async def test_inside_a_lost_replica_holds_nothing(inside: InsideHints) -> None:
    ours = msgspec.structs.replace(PREFIX, unreported=True)
    for replica in ("r1", "r2", "r1"):
        inside.sent(ours, replica, 0)
    for replica in ("r1", "r2"):
        inside.ended(ours, replica, held=True)
    inside.lost(ours, "r1")
    assert [one.replica for one in (await inside.hint(ours, DEADLINE_S)).ranked] == ["r2"]


async def test_inside_pressure_is_what_replicas_last_said(inside: InsideHints) -> None:
    inside._live.ingest(Report(replica="r0", model="m", tenant="fleet", scheme="", stats=Stats(pressure=0.75)))
    assert inside.pressure("fleet", "m") == {"r0": 0.75}
    assert inside.pressure("fleet", "other") == {}


async def test_inside_a_deadline_that_has_passed_is_a_timeout(inside: InsideHints) -> None:
    assert (await inside.hint(PREFIX, -1.0)).reason is Lookup.TIMEOUT


class Breaking:
    """An implementation with a bug in every verb."""

    async def hint(self, prefix: Prefix, timeout_s: float) -> Hint:
        raise RuntimeError("planted")

    def pressure(self, tenant: str, model: str) -> dict[str, float]:
        raise RuntimeError("planted")

    def joined(self, tenant: str, model: str, scheme: str, replicas: Sequence[str]) -> None:
        raise RuntimeError("planted")

    def sent(self, prefix: Prefix, replica: str, matched_tokens: int) -> None:
        raise RuntimeError("planted")

    def ended(self, prefix: Prefix, replica: str, held: bool) -> None:
        raise RuntimeError("planted")

    def lost(self, prefix: Prefix, replica: str) -> None:
        raise RuntimeError("planted")

    async def close(self) -> None:
        return


async def test_a_bug_behind_the_port_costs_a_hint_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    guarded = GuardedHints(Breaking(), SystemClock())
    assert (await guarded.hint(PREFIX, 1.0)).reason is Lookup.NO_HINT
    assert guarded.pressure("fleet", "m") == {}
    guarded.joined("fleet", "m", "s", ["r0"])
    guarded.sent(PREFIX, "r0", 0)
    guarded.ended(PREFIX, "r0", held=True)
    guarded.lost(PREFIX, "r0")
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["RuntimeError"]


async def test_what_is_behind_the_port_is_reached(inside: InsideHints) -> None:
    guarded = GuardedHints(inside, SystemClock())
    guarded.joined("fleet", "m", "s", ["r0", "r1"])
    guarded.sent(PREFIX, "r1", 0)
    assert (await guarded.hint(PREFIX, DEADLINE_S)).ranked[0].replica == "r1"


def test_prompts_that_begin_alike_have_the_same_leading_blocks() -> None:
    def hashes(*texts: str) -> list[bytes]:
        messages = [{"role": "user", "content": text} for text in texts]
        return content_hashes(prompt_text({"messages": messages, "tools": [{"type": "function"}]}))

    long = "word " * 1_000
    one, two, other = hashes(long, "a" * 2_000), hashes(long, "b" * 2_000), hashes("x" + long)
    shared = next(at for at, (left, right) in enumerate(zip(one, two, strict=False)) if left != right)
    assert shared >= len(long) // BLOCK_BYTES - 1
    assert not set(one) & set(other)
    assert hashes("short") == []


async def test_a_content_prefix_says_that_nobody_else_reports_it() -> None:
    prefixes = ContentPrefixes(tenant="fleet", model="m", adapter="a")
    found = await prefixes.prefix({"messages": [{"role": "user", "content": "word " * 1_000}]}, 1.0)
    assert found is not None
    assert (found.scheme, found.unreported, found.adapter) == (SCHEME, True, "a")
    assert len(found.hashes) == len(found.counts) == 9
    assert sum(found.counts) <= found.tokens
