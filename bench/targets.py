"""The figures to reach, as one table, and what a run says of each.

1. A figure is read from a run's results by one path; a part that was not run gives "not measured", never a pass.
2. Speed is judged by what holds on any machine: CPU, and ratios within one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bench import cases
from bench.stats import growth

Results = dict[str, Any]


class Sense(StrEnum):
    """Which side of the bound is good."""

    AT_MOST = "≤"
    AT_LEAST = "≥"


@dataclass(frozen=True)
class Target:
    """One figure: what it is, how it is read, and its bound. `read` raises KeyError when it was not measured."""

    name: str
    unit: str
    sense: Sense
    bound: float
    read: Callable[[Results], float]


@dataclass(frozen=True)
class Verdict:
    """What a run says of a target. `value` None: not measured. `missed_by` is in its unit, 0 when reached."""

    target: Target
    value: float | None
    missed_by: float

    @property
    def text(self) -> str:
        """In words."""
        if self.value is None:
            return "not measured"
        if not self.missed_by:
            return "reached"
        share = self.missed_by / self.target.bound
        return f"missed by {self.missed_by:.3g} {self.target.unit} ({share:.0%})".replace("  ", " ")


def judge(target: Target, results: Results) -> Verdict:
    """Hold a target against a run."""
    try:
        value = target.read(results)
    except KeyError:
        return Verdict(target, None, 0.0)
    over = value - target.bound if target.sense is Sense.AT_MOST else target.bound - value
    return Verdict(target, value, max(0.0, over))


def cell(results: Results, server: str, case: cases.Case, connections: int) -> dict[str, Any]:
    """One measured cell. Raises KeyError when it was not measured."""
    found: dict[str, Any] = results["cells"][server][case.name][str(connections)]
    return found


def _cpu(case: cases.Case, connections: int) -> Callable[[Results], float]:
    return lambda results: float(cell(results, "plane", case, connections)["cpu_ms"])


def _chunk_cpu(case: cases.Case, connections: int) -> Callable[[Results], float]:
    return lambda results: float(cell(results, "plane", case, connections)["cpu_ms"]) / cases.STREAM_CHUNKS


def _added(case: cases.Case, connections: int, key: str) -> Callable[[Results], float]:
    def read(results: Results) -> float:
        ours, mocks = (cell(results, server, case, connections)[key] for server in ("plane", "mock"))
        return float(ours - mocks)

    return read


def _beside_chat(case: cases.Case, connections: int) -> Callable[[Results], float]:
    return lambda results: _cpu(case, connections)(results) - _cpu(cases.PLAIN, connections)(results)


def _rps_ratio(results: Results) -> float:
    ours, theirs = (cell(results, server, cases.PLAIN, 64)["rps"] for server in ("plane", "litellm"))
    return float(ours / theirs)


def _soak_growth(results: Results) -> float:
    return growth([sample["server"] for sample in results["soak"]["memory"]]) * 100


_MOST, _LEAST = Sense.AT_MOST, Sense.AT_LEAST
_PLAIN, _REFUSAL, _PACED, _BURST = cases.PLAIN, cases.REFUSAL, cases.PACED, cases.BURST

TARGETS = (
    Target("governed request, CPU, c=1", "ms", _MOST, 0.6, _cpu(_PLAIN, 1)),
    Target("governed request, CPU, c=16", "ms", _MOST, 0.6, _cpu(_PLAIN, 16)),
    Target("governed request, CPU, c=64", "ms", _MOST, 0.6, _cpu(_PLAIN, 64)),
    Target("the same on /v1/messages, CPU, c=16", "ms", _MOST, 0.6, _cpu(cases.MESSAGES, 16)),
    Target("the same on /v1/messages, CPU added to chat's, c=16", "ms", _MOST, 0.1, _beside_chat(cases.MESSAGES, 16)),
    Target("the same on /v1/invocations, CPU, c=16", "ms", _MOST, 0.6, _cpu(cases.INVOCATIONS, 16)),
    Target(
        "the same on /v1/invocations, CPU added to chat's, c=16", "ms", _MOST, 0.1, _beside_chat(cases.INVOCATIONS, 16)
    ),
    Target("governed request, RPS over LiteLLM's, c=64", "×", _LEAST, 25, _rps_ratio),
    Target("governed request, p50 added over the mock, c=1", "ms", _MOST, 2.5, _added(_PLAIN, 1, "p50_ms")),
    Target("refusal by policy, CPU, c=1", "ms", _MOST, 0.3, _cpu(_REFUSAL, 1)),
    Target("refusal by policy, CPU, c=16", "ms", _MOST, 0.3, _cpu(_REFUSAL, 16)),
    Target("refusal by policy, CPU, c=64", "ms", _MOST, 0.3, _cpu(_REFUSAL, 64)),
    Target("stream of 100 chunks, TTFT p50 added over the mock, c=1", "ms", _MOST, 2, _added(_PACED, 1, "ttft_p50_ms")),
    Target("stream of 100 chunks, CPU a chunk, every 2 ms, c=1", "ms", _MOST, 0.05, _chunk_cpu(_PACED, 1)),
    Target("stream of 100 chunks, CPU a chunk, every 2 ms, c=16", "ms", _MOST, 0.05, _chunk_cpu(_PACED, 16)),
    Target("stream of 100 chunks, CPU a chunk, unpaced, c=16", "ms", _MOST, 0.05, _chunk_cpu(_BURST, 16)),
    Target(
        "upstream closed after the client left, worst of all trials",
        "ms",
        _MOST,
        100,
        lambda results: float(results["leaving"]["plane"]["worst_ms"]),
    ),
    Target(
        "durable records a second, 64 callers",
        "/s",
        _LEAST,
        5_000,
        lambda results: float(results["records"]["per_s"]),
    ),
    Target("50 000 requests, RSS, peak", "MB", _MOST, 150, lambda results: float(results["soak"]["rss_peak_mb"])),
    Target("50 000 requests, RSS, growth over the second half", "%", _MOST, 2, _soak_growth),
)
