"""The bench's tables in Markdown, and their place in a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from bench.targets import TARGETS, Results, judge

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns line up; all but the first are right-aligned."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def set_out(line: Sequence[str]) -> str:
        cells = [
            line[0].ljust(widths[0]),
            *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)),
        ]
        return f"| {' | '.join(cells)} |"

    return "\n".join([set_out(lines[0]), set_out(rule), *(set_out(line) for line in lines[1:])])


def number(value: float) -> str:
    """Three significant digits, without an exponent: 0.0213, 4.07, 18 400."""
    if value >= 1000:
        return f"{round(value):,}".replace(",", " ")
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}"


def requests_table(results: Results) -> str:
    """Every cell that is no stream."""
    rows = [
        [
            f"{case}: {_named(results, server)}",
            connections,
            number(cell["rps"]),
            number(cell["p50_ms"]),
            number(cell["p99_ms"]),
            number(cell["cpu_ms"]),
            number(cell["rss_mb"]),
            str(cell["errors"]),
        ]
        for server, case, connections, cell in _cells(results, streamed=False)
    ]
    return table(["case", "c", "RPS", "p50 ms", "p99 ms", "CPU ms/request", "RSS MB", "errors"], rows)


def streams_table(results: Results) -> str:
    """Every cell that is one."""
    rows = [
        [
            f"{case}: {_named(results, server)}",
            connections,
            number(cell["ttft_p50_ms"]),
            number(cell["ttft_p99_ms"]),
            number(cell["p50_ms"]),
            number(cell["chunks_per_s"]),
            number(cell["cpu_ms"]),
            number(cell["cpu_ms"] / 100 * 1000),
            str(cell["errors"]),
        ]
        for server, case, connections, cell in _cells(results, streamed=True)
    ]
    heads = [
        "case",
        "c",
        "TTFT p50 ms",
        "p99 ms",
        "whole p50 ms",
        "chunks/s",
        "CPU ms/stream",
        "µs/chunk",
        "errors",
    ]
    return table(heads, rows)


def targets_table(results: Results) -> str:
    """Every figure to reach, and whether it was."""
    verdicts = [judge(target, results) for target in TARGETS]
    rows = [
        [
            verdict.target.name,
            f"{verdict.target.sense} {verdict.target.bound:g} {verdict.target.unit}",
            "" if verdict.value is None else number(verdict.value),
            verdict.text,
        ]
        for verdict in verdicts
    ]
    return table(["figure", "to reach", "measured", ""], rows)


def other_lines(results: Results) -> str:
    """What fits no table: leaving, records, the long run, the start."""
    lines = []
    for server, left in results.get("leaving", {}).items():
        closed = f"p50 {number(left['p50_ms'])} ms, worst {number(left['worst_ms'])} ms" if left["closed"] else "never"
        lines.append(
            f"- Upstream closed after the client left, {_named(results, server)}: {closed}"
            f" ({left['closed']} of {left['trials']} within {left['waited_ms']:.0f} ms)."
        )
    if "records" in results:
        records = results["records"]
        lines.append(
            f"- Durable records at {records['connections']} callers: {number(records['per_s'])}/s"
            f" ({records['records']} records of {records['requests']} requests in {records['seconds']:.1f} s)."
        )
    if "soak" in results:
        soak = results["soak"]
        start, peak, end = (number(soak[f"rss_{when}_mb"]) for when in ("start", "peak", "end"))
        lines.append(
            f"- {soak['requests']} requests at {soak['connections']} callers: RSS {start} MB at the start,"
            f" {peak} at the peak, {end} at the end; {number(soak['rps'])} RPS, {soak['errors']} errors."
        )
    for server, seconds in results.get("started_s", {}).items():
        lines.append(f"- {_named(results, server)} was up in {seconds:.1f} s.")
    return "\n".join(lines)


def machine_lines(results: Results) -> str:
    """Where and when."""
    machine = dict(results["machine"])
    shares = [cell["others_cpu_share"] for *_, cell in _all_cells(results) if "others_cpu_share" in cell]
    if shares:
        machine["noise"] = (
            f"everything else on the machine took {median(shares):.2f} of its cores beside the median cell,"
            f" {max(shares):.2f} beside the worst"
        )
    return "\n".join(f"- {name}: {value}" for name, value in machine.items())


def page(results: Results) -> str:
    """All of it."""
    parts = (
        ("Machine", machine_lines(results)),
        ("Figures to reach", targets_table(results)),
        ("Requests", requests_table(results)),
        ("Streams of 100 chunks", streams_table(results)),
        ("Beside the tables", other_lines(results)),
    )
    return "\n\n".join(f"### {head}\n\n{text}" for head, text in parts if text)


def replace_measured(document: str, measured: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with what stands between its two marks replaced. Raises ValueError unless each is there once."""
    if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
        raise ValueError(f"the page needs {begin} and then {end}, once each")
    before, rest = document.split(begin)
    return f"{before}{begin}\n\n{measured}\n\n{end}{rest.split(end)[1]}"


def _named(results: Results, server: str) -> str:
    name: str = results["servers"].get(server, server)
    return name


def _cells(results: Results, *, streamed: bool) -> Iterable[tuple[str, str, str, dict[str, Any]]]:
    return (found for found in _all_cells(results) if ("ttft_p50_ms" in found[3]) is streamed)


def _all_cells(results: Results) -> Iterable[tuple[str, str, str, dict[str, Any]]]:
    cases = dict.fromkeys(case for by_case in results["cells"].values() for case in by_case)
    for case in cases:
        for server, by_case in results["cells"].items():
            for connections, cell in by_case.get(case, {}).items():
                yield server, case, connections, cell
