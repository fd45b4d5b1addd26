"""Engines' metrics pages."""

import pytest

from terraflow.hints.feed.scrape import Gauge, Unscraped, parse_page

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 24.0
vllm:num_requests_waiting{engine="0",model_name="m"} 40.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 40.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25 1790347303000
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:external_prefix_cache_queries_total{engine="0"} 1000.0
vllm:external_prefix_cache_hits_total{engine="0"} 750.0
vllm:prefix_cache_queries_created{engine="0"} 1.7e9
"""
SGLANG = """\
sglang:num_running_reqs{model_name="a \\"b\\" {c}",tp_rank="0"} 100
sglang:num_running_reqs{model_name="m",tp_rank="1"} 128
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 400
sglang:token_usage{model_name="m",tp_rank="0"} 0.5
sglang:cache_hit_rate{model_name="m",tp_rank="0"} 0.75
"""


def test_vllm():
    stats = Gauge(cache_bytes=1_000, client_version="v").read(parse_page(VLLM)["*"]).stats
    assert (stats.pressure, stats.hit_rate, stats.cache_memory_bytes) == (64 / 256, 0.4, 250)
    assert (stats.t2_hit_tokens, stats.t2_query_tokens, stats.client_version) == (750, 1000, "v")


def test_sglang_shards_say_the_same_and_pressure_is_at_most_1():
    stats = Gauge().read(parse_page(SGLANG)["*"]).stats
    assert (stats.pressure, stats.hit_rate) == (1.0, 0.75)


def test_older_names():
    page = "vllm:gpu_cache_usage_perc 0.5\nvllm:prefix_cache_queries 10\nvllm:prefix_cache_hits 5\n"
    stats = Gauge(cache_bytes=10).read(parse_page(page)["*"]).stats
    assert (stats.hit_rate, stats.cache_memory_bytes) == (0.5, 5)


def sample(queries: float, hits: float) -> dict[str, float]:
    return {"queries": queries, "hits": hits}


def test_the_hit_rate_is_of_what_was_asked_since_and_stays_while_nothing_is():
    gauge = Gauge()
    assert gauge.read(sample(100, 50)).stats.hit_rate == 0.5
    assert gauge.read(sample(200, 140)).stats.hit_rate == 0.9
    assert gauge.read(sample(200, 140)).stats.hit_rate == 0.9


def test_counters_that_go_back_are_a_restart():
    gauge = Gauge()
    assert not gauge.read(sample(100, 50)).restarted
    reading = gauge.read(sample(10, 1))
    assert (reading.restarted, reading.stats.hit_rate) == (True, 0.1)
    assert not gauge.read(sample(20, 2)).restarted


def test_ranks_apart_and_together():
    page = (
        'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 5\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.1\nvllm:kv_cache_usage_perc{engine="1"} 0.3\n'
    )
    ranks = parse_page(page)
    assert ranks == {
        "0": {"running": 1, "usage": 0.1},
        "1": {"running": 5, "usage": 0.3},
        "*": {"running": 6, "usage": 0.3},
    }


def test_what_is_no_number_is_passed_over():
    page = "vllm:num_requests_running NaN\nvllm:num_requests_waiting x\nvllm:kv_cache_usage_perc{ 1\n"
    page += "sglang:token_usage +Inf\nsglang:token_usage\n"
    with pytest.raises(Unscraped):
        parse_page(page)
    assert parse_page(page + "sglang:num_queue_reqs 7")["*"] == {"waiting": 7.0}


def test_numbers_are_kept_in_their_bounds():
    stats = Gauge(cache_bytes=10).read({"usage": 7.0, "hit_rate": -1.0, "running": -5.0, "t2_hits": 1e300}).stats
    assert (stats.cache_memory_bytes, stats.hit_rate, stats.pressure) == (10, 0.0, 0.0)
    assert stats.t2_hit_tokens == 2**62
