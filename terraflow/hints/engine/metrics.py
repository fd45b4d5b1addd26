"""What an engine counts, under vLLM's names, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from terraflow.hints.engine.rank import Rank

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Row(NamedTuple):
    """A metric."""

    name: str
    kind: str
    value: Callable[[Rank], float]


# fmt: off
ROWS: tuple[Row, ...] = (
    Row("vllm:num_requests_running",                "gauge",   lambda rank: rank.counts.running),
    Row("vllm:num_requests_waiting",                "gauge",   lambda rank: rank.counts.waiting),
    Row("vllm:kv_cache_usage_perc",                 "gauge",   lambda rank: rank.memory.usage),
    Row("vllm:prefix_cache_queries_total",          "counter", lambda rank: rank.counts.queried_tokens),
    Row("vllm:prefix_cache_hits_total",             "counter", lambda rank: rank.counts.hit_tokens),
    Row("vllm:external_prefix_cache_queries_total", "counter", lambda rank: rank.counts.offload_queried_tokens),
    Row("vllm:external_prefix_cache_hits_total",    "counter", lambda rank: rank.counts.offload_hit_tokens),
    Row("vllm:prompt_tokens_total",                 "counter", lambda rank: rank.counts.prompt_tokens),
    Row("vllm:generation_tokens_total",             "counter", lambda rank: rank.counts.output_tokens),
    Row("vllm:request_success_total",               "counter", lambda rank: rank.counts.ended),
)
# fmt: on


def exposition(model: str, ranks: Sequence[Rank]) -> str:
    """All metrics; `engine` is the rank's number."""
    named = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    lines: list[str] = []
    for row in ROWS:
        lines.append(f"# TYPE {row.name} {row.kind}")
        for number, rank in enumerate(ranks):
            lines.append(f'{row.name}{{engine="{number}",model_name="{named}"}} {row.value(rank):.12g}')
    return "\n".join(lines) + "\n"
