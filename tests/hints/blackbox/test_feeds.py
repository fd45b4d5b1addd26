"""A service that hears an engine: what it caches is hinted, through restarts of either."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from terraflow.core.reasons import Lookup
from tests.harness.engines import FAST, Beside
from tests.hints.blackbox.served import Served, until

FEED = """
[tokenizers]
sim = "bytes"

[[feeds]]
replica = "engine-1"
tenant = "t"
model = "sim"
scheme = "vllm"
endpoint = "{events}"
replay_endpoint = "{replay}"
metrics_url = "{metrics}"
heartbeat_s = 1.0
scrape_interval_s = 0.2
"""
OF_FEED = '{model="sim",replica="engine-1",tenant_id="t"}'


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Beside]:
    """A simulated engine."""
    with Beside(tmp_path / "engine.stderr", "hints", "sim-engine", *FAST) as started:
        started.wait()
        yield started


@pytest.fixture
def fed(tmp_path: Path, engine: Beside) -> Iterator[Served]:
    """A service with the engine's feed."""
    metrics = engine.said["base_url"].removesuffix("/v1") + "/metrics"
    toml = FEED.format(events=engine.said["kv_events"][0], replay=engine.said["kv_replay"][0], metrics=metrics)
    with Served(tmp_path, toml) as served:
        until(lambda: served.metric(f"terraflow_hints_feed_connected{OF_FEED}") == 1)
        yield served


def ask(engine: Beside, text: str) -> None:
    """One completion of the engine, which then holds the prompt's blocks."""
    body = json.dumps({"model": "sim", "messages": [{"role": "user", "content": text}]}).encode()
    request = urllib.request.Request(
        engine.said["base_url"] + "/chat/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        answer.read()


def hinted(served: Served, text: str) -> bool:
    """Whether the engine is known to hold nearly all of the text."""
    answer = served.client().lookup("t", "sim", "vllm", prompt_text=text)
    return answer.reason_code == Lookup.PREFIX_MATCH and answer.replica_scores[0].matched_tokens >= len(text) - 16


def test_what_an_engine_caches_is_hinted_and_its_load_is_known(engine: Beside, fed: Served) -> None:
    text = "a long prompt " * 40
    assert not hinted(fed, text)
    ask(engine, text)
    until(lambda: hinted(fed, text))
    until(lambda: [row.replica_id for row in fed.client().state("t", "sim").replicas] == ["engine-1"])
    assert fed.metric(f"terraflow_hints_feed_batches_total{OF_FEED}") > 0
    assert fed.metric(f"terraflow_hints_feed_gaps_total{OF_FEED}") == 0


def test_a_restarted_service_knows_at_once_and_learns_what_it_missed(engine: Beside, fed: Served) -> None:
    known, missed = "known before " * 40, "missed meanwhile " * 40
    ask(engine, known)
    until(lambda: hinted(fed, known))
    fed.stop()
    ask(engine, missed)
    fed.start()
    assert hinted(fed, known)
    until(lambda: fed.metric(f"terraflow_hints_feed_connected{OF_FEED}") == 1)
    ask(engine, "the next batch shows the gap " * 10)
    until(lambda: hinted(fed, missed))
    assert fed.metric(f"terraflow_hints_feed_replays_completed_total{OF_FEED}") >= 1
    assert hinted(fed, known)


def test_a_lost_engines_entries_are_worth_less_within_two_heartbeats(engine: Beside, fed: Served) -> None:
    text = "soon in doubt " * 40
    ask(engine, text)
    until(lambda: hinted(fed, text))
    before = fed.client().lookup("t", "sim", "vllm", prompt_text=text).replica_scores[0].score
    engine.kill()

    def doubted() -> bool:
        rows = fed.client().lookup("t", "sim", "vllm", prompt_text=text).replica_scores
        return not rows or rows[0].score < before * 0.2

    until(doubted, seconds=5)
