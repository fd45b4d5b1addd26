"""An engine's own metrics, from its Prometheus page to `Stats`: vLLM's and SGLang's names.

1. Only the names of the tables are read; a line that is not understood is passed over.
2. A page may speak of several data-parallel ranks (`engine` or `dp_rank`). Series of one rank are shards of the same
   numbers and their greatest counts; over ranks, requests and tokens add up, shares take the greatest.
3. Pressure is (running + waiting) / `FULL_LOAD_REQUESTS`, at most 1.
4. The hit rate is that since the last page, from counters, and stays what it was while nothing was asked; SGLang gives
   it itself. Offload tokens are passed on as counted.
5. A counter that goes back means that the engine has started again.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator

import aiohttp
import msgspec

from terraflow.hints.words import FULL_LOAD_REQUESTS, Stats

PAGE_BYTES_MAX = 4 << 20
RANK_LABELS = ("dp_rank", "engine")

# fmt: off
NAMES: dict[str, str] = {
    "vllm:kv_cache_usage_perc":                 "usage",
    "vllm:gpu_cache_usage_perc":                "usage",
    "vllm:prefix_cache_hits":                   "hits",
    "vllm:prefix_cache_hits_total":             "hits",
    "vllm:gpu_prefix_cache_hits":               "hits",
    "vllm:gpu_prefix_cache_hits_total":         "hits",
    "vllm:prefix_cache_queries":                "queries",
    "vllm:prefix_cache_queries_total":          "queries",
    "vllm:gpu_prefix_cache_queries":            "queries",
    "vllm:gpu_prefix_cache_queries_total":      "queries",
    "vllm:external_prefix_cache_hits":          "t2_hits",
    "vllm:external_prefix_cache_hits_total":    "t2_hits",
    "vllm:external_prefix_cache_queries":       "t2_queries",
    "vllm:external_prefix_cache_queries_total": "t2_queries",
    "vllm:num_requests_running":                "running",
    "vllm:num_requests_waiting":                "waiting",
    "sglang:token_usage":                       "usage",
    "sglang:cache_hit_rate":                    "hit_rate",
    "sglang:num_running_reqs":                  "running",
    "sglang:num_queue_reqs":                    "waiting",
}
# fmt: on

COUNTERS = ("hits", "queries", "t2_hits", "t2_queries")
SHARES = ("usage", "hit_rate")

_LINE = re.compile(r"([a-z]+:[a-z_]+)(?:\{(.*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?[ \t]*$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Sample = dict[str, float]


class Unscraped(Exception):
    """The page could not be had, or says nothing that is known."""


def _series(page: str) -> Iterator[tuple[str, str, float]]:
    for line in page.splitlines():
        if not line.startswith(("vllm:", "sglang:")):
            continue
        match = _LINE.match(line)
        field = NAMES.get(match[1]) if match is not None else None
        if match is None or field is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        yield field, next((labels[name] for name in RANK_LABELS if name in labels), ""), value


def parse_page(page: str) -> dict[str, Sample]:
    """The numbers of each rank, by its label, and of all together under `*`. Raises `Unscraped` if there are none."""
    ranks: dict[str, Sample] = {}
    for field, rank, value in _series(page):
        sample = ranks.setdefault(rank, {})
        sample[field] = max(value, sample.get(field, -math.inf))
    if not ranks:
        raise Unscraped("no metric of an engine")
    together: Sample = {}
    for sample in ranks.values():
        for field, value in sample.items():
            before = together.get(field)
            together[field] = value if before is None else max(before, value) if field in SHARES else before + value
    return {**ranks, "*": together}


class Reading(msgspec.Struct, frozen=True):
    """What a page comes to. `restarted`: a counter is lower than on the page before."""

    stats: Stats
    restarted: bool


class Gauge:
    """One replica's numbers, from page to page."""

    def __init__(self, *, cache_bytes: int = 0, client_version: str = "") -> None:
        self._cache_bytes = cache_bytes
        self._client_version = client_version
        self._before: Sample = {}
        self._hit_rate = 0.0

    def read(self, sample: Sample) -> Reading:
        """Take in the replica's numbers of one page."""
        before = self._before
        restarted = any(sample.get(name, math.inf) < before.get(name, -math.inf) for name in COUNTERS)
        if restarted:
            before, self._hit_rate = {}, 0.0
        self._before = {name: sample[name] for name in COUNTERS if name in sample}
        if "hit_rate" in sample:
            self._hit_rate = sample["hit_rate"]
        else:
            asked = sample.get("queries", 0.0) - before.get("queries", 0.0)
            if asked > 0:
                self._hit_rate = (sample.get("hits", 0.0) - before.get("hits", 0.0)) / asked
        load = (sample.get("running", 0.0) + sample.get("waiting", 0.0)) / FULL_LOAD_REQUESTS
        return Reading(
            Stats(
                cache_memory_bytes=int(_share(sample.get("usage", 0.0)) * self._cache_bytes),
                hit_rate=_share(self._hit_rate),
                pressure=_share(load),
                client_version=self._client_version,
                t2_hit_tokens=_count(sample.get("t2_hits", 0.0)),
                t2_query_tokens=_count(sample.get("t2_queries", 0.0)),
            ),
            restarted,
        )


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _count(value: float) -> int:
    return int(min(max(value, 0.0), 2.0**62))


async def fetch_page(session: aiohttp.ClientSession, url: str, timeout_s: float) -> str:
    """The text of a metrics page. Raises `Unscraped`."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=timeout_s), allow_redirects=False) as answer:
            if answer.status != 200:
                raise Unscraped(f"status {answer.status}")
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > PAGE_BYTES_MAX:
                    raise Unscraped(f"a page of more than {PAGE_BYTES_MAX} bytes")
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
        errno = getattr(error, "errno", None)
        raise Unscraped(os.strerror(errno) if errno else type(error).__name__) from None
    return body.decode("utf-8", "replace")
