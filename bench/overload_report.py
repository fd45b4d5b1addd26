"""What the overload bench says, from its rows: the figures, and two tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from bench.open_loop import Phase, Row
from bench.stats import percentile

BEGIN, END = "<!-- overload measured: begin -->", "<!-- overload measured: end -->"
_OK, _SHED = 200, 429
NAMES = {
    "door": "TerraFlow",
    "starved": "TerraFlow, on a quarter of a processor",
    "fifo": "planted: one line for everybody",
}


class Bounds(msgspec.Struct, frozen=True):
    """What is to be reached, None where a run is not held to a figure."""

    goodput: float = 0.9
    shed_ms: float | None = 20.0


STARVED = Bounds(goodput=0.8, shed_ms=None)
"""A process that runs a quarter of the time waits longer for its turn than a shed may take."""


class Figure(msgspec.Struct, frozen=True):
    """One promise and what was measured. `text` is the measured value in words, `to_reach` the bound."""

    name: str
    to_reach: str
    text: str
    reached: bool


class Figures(msgspec.Struct, kw_only=True):
    """Everything measured of one plane. Amounts in micro-dollars; `recorded` and `heard` count statuses."""

    rows: Sequence[Row]
    phases: Sequence[Phase]
    deadline_ms: int
    steady: Sequence[str]
    idle_mb: float
    peak_mb: float
    probe_slowest_ms: float
    probe_failed: int
    probe_questions: int
    connections: int
    generator_late_mean_ms: float
    generator_cpu: float
    plane_cpu: float
    all_cpu: float
    reserved: int
    posted: int
    evidence: int
    unended: int
    recorded: Mapping[int, int]
    heard: Mapping[int, int]
    lost: int
    bounds: Bounds = Bounds()

    def of(self, phase: str, tenants: Sequence[str] | None = None) -> list[Row]:
        """The rows of a phase, of all tenants or some."""
        number = [each.name for each in self.phases].index(phase)
        return [row for row in self.rows if row.phase == number and (tenants is None or row.tenant in tenants)]

    def goodput(self, phase: str) -> float:
        """Good answers a second that came during the phase, also to what was asked for before it."""
        begins, at = [0.0], [each.name for each in self.phases].index(phase)
        for each in self.phases:
            begins.append(begins[-1] + each.seconds)
        good = [row for row in self.rows if row.status == _OK and row.took_ms <= self.deadline_ms]
        ended = (begins[row.phase] + row.due_s + row.took_ms / 1000 for row in good)
        return sum(begins[at] <= end < begins[at + 1] for end in ended) / self.phases[at].seconds

    def p99_ms(self, phase: str) -> float:
        """Of the steady tenants' good answers."""
        return percentile([row.took_ms for row in self.of(phase, self.steady) if row.status == _OK], 99)

    def served(self, phase: str) -> float:
        """The share of the steady tenants' requests that were answered."""
        rows = self.of(phase, self.steady)
        return sum(row.status == _OK for row in rows) / max(1, len(rows))

    def back_s(self) -> float:
        """After the flood, how long until every steady request is answered within twice what is usual."""
        usual_ms = 2 * self.p99_ms("alone")
        rows = self.of("after", self.steady)
        bad = [row.due_s + row.took_ms / 1000 for row in rows if row.status != _OK or row.took_ms > usual_ms]
        return max(bad, default=0.0)

    def shed_p99_ms(self) -> float:
        """Until a request that was turned away in the flood had its answer."""
        return percentile([row.took_ms for row in self.of("ten times") if row.status == _SHED], 99)

    def figures(self) -> list[Figure]:
        """Every promise, in the order of the page."""
        peak = max(self.goodput("full"), self.goodput("more than full"))
        good, alone, flooded = self.goodput("ten times") / peak, self.p99_ms("alone"), self.p99_ms("ten times")
        served, shed, back, more = (
            self.served("ten times"),
            self.shed_p99_ms(),
            self.back_s(),
            self.peak_mb - self.idle_mb,
        )
        heard = {status: n for status, n in self.heard.items() if self.recorded.get(status, 0) < n}
        told, bounds = self.unended == 0 and not heard, self.bounds
        return [
            Figure(
                "goodput at ten times the load, of the peak",
                f"≥ {bounds.goodput:.2f}",
                f"{good:.3f}",
                good >= bounds.goodput,
            ),
            Figure("tenants within their share, served", "≥ 99 %", f"{served:.2%}", served >= 0.99),
            Figure("their p99, of that alone", "≤ 2 ×", f"{flooded / alone:.2f}", flooded <= 2 * alone),
            Figure(
                "a shed, p99",
                "" if bounds.shed_ms is None else f"≤ {bounds.shed_ms:.0f} ms",
                f"{shed:.1f} ms" if shed else "none was",
                0 < shed <= (bounds.shed_ms or math.inf),
            ),
            Figure("back to normal after the flood", "≤ 2 s", f"{back:.2f} s", back <= 2),
            Figure("memory above idle", "≤ 100 MiB", f"{more:.0f} MiB", more <= 100),
            Figure(
                "health and readiness, slowest answer",
                "≤ 250 ms",
                f"{self.probe_slowest_ms:.0f} ms of {self.probe_questions}"
                + f", {self.probe_failed} failed" * bool(self.probe_failed),
                self.probe_slowest_ms <= 250 and not self.probe_failed,
            ),
            Figure("money still reserved afterwards", "0", f"{self.reserved}", self.reserved == 0),
            Figure(
                "money posted, and in the evidence, micro-dollars",
                "equal",
                f"{self.posted}, {self.evidence}",
                self.posted == self.evidence,
            ),
            Figure(
                "answers without their record, requests without an outcome",
                "0",
                f"{sum(n - self.recorded.get(status, 0) for status, n in heard.items())}, {self.unended}",
                told,
            ),
        ]


def table(which: str, found: Figures) -> str:
    """What happened in each phase."""
    lines = [
        f"#### {NAMES[which]}",
        "",
        "| phase | sent /s | good /s | 429 /s | of them at the step /s | others /s | steady: served | p50 ms | p99 ms"
        " | shed p99 ms |",
        "| --- | -: | -: | -: | -: | -: | -: | -: | -: | -: |",
    ]
    for phase in found.phases[1:]:
        rows, steady = found.of(phase.name), found.of(phase.name, found.steady)
        took = [row.took_ms for row in steady if row.status == _OK]
        shed = [row.took_ms for row in rows if row.status == _SHED]
        early = sum(row.status == _SHED and not row.governed for row in rows)
        others = sum(row.status not in (_OK, _SHED) for row in rows)
        lines.append(
            f"| {phase.name} | {len(rows) / phase.seconds:.0f} | {found.goodput(phase.name):.0f} |"
            f" {len(shed) / phase.seconds:.0f} | {early / phase.seconds:.0f} | {others / phase.seconds:.0f} |"
            f" {found.served(phase.name):.1%} | {percentile(took, 50):.0f} | {percentile(took, 99):.0f} |"
            f" {percentile(shed, 99):.1f} |"
        )
    lines += ["", "| figure | to reach | measured | |", "| --- | -: | -: | -: |"]
    lines += [
        f"| {each.name} | {each.to_reach} | {each.text} | {'reached' if each.reached else 'missed'} |"
        for each in found.figures()
    ]
    lines += [
        "",
        f"Of its processor the plane took {found.plane_cpu:.0%}, of the other the generator {found.generator_cpu:.0%},"
        f" both and everything else on the machine {found.all_cpu:.2f} processors. The generator was"
        f" {found.generator_late_mean_ms:.1f} ms late on average and opened {found.connections} connections;"
        f" {found.lost} requests had no answer.",
    ]
    return "\n".join(lines)


def section(facts: Mapping[str, str], measured: Mapping[str, Figures]) -> str:
    """All of it, for the page."""
    where = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return "\n\n".join([where, *(table(which, found) for which, found in measured.items())])
