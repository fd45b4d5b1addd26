"""`make bench-hints`: the index, feeds, LookupRoute over gRPC, and the quality of hints, each against its figures.

The parts are commands of their own too: `python -m bench.hints_index`, `bench.hints_feed`, `bench.hints_rpc`,
`bench.hints_quality`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench import hints_feed, hints_index, hints_quality, hints_rpc
from bench.machine import machine
from bench.report import replace_measured

BEGIN = "<!-- hints measured: begin -->"
END = "<!-- hints measured: end -->"

PARTS: dict[str, tuple[str, Callable[[bool], Any], Callable[[Any], str]]] = {
    "index": ("The index", lambda quick: hints_index.measure(quick=quick), hints_index.tables),
    "feed": ("A feed", lambda quick: hints_feed.measure(quick=quick), hints_feed.report),
    "rpc": ("LookupRoute over gRPC", lambda quick: hints_rpc.measure(quick=quick), hints_rpc.report),
    "quality": ("Quality, on the conversation trace", lambda quick: hints_quality.measure(), hints_quality.report),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit 0 when everything asked for was measured, whether or not the figures are reached; 2 when it
    cannot be."""
    parser = argparse.ArgumentParser(prog="make bench-hints", description="Measure route hints against their figures.")
    parser.add_argument("--quick", action="store_true", help="short rounds: for a look, not for the page")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"which of {', '.join(PARTS)}")
    parser.add_argument("--json", type=Path, help="also write everything that was measured to this file")
    parser.add_argument("--write", type=Path, help="replace the hints' measured section of this page")
    asked = parser.parse_args(arguments)
    names = asked.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"unknown part {unknown[0]}: the parts are {', '.join(PARTS)}")
    if "rpc" in names and shutil.which("h2load") is None:
        parser.error("h2load is not there: `make trust-setup` installs it (Debian's nghttp2-client), or leave rpc out")
    with tempfile.TemporaryDirectory() as folder:
        facts = machine(Path(folder))
    facts.pop("disk")
    said = ["### Machine\n\n" + "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    results: dict[str, Any] = {"machine": facts}
    for name in names:
        title, measure, tables = PARTS[name]
        print(f"measuring: {title}", file=sys.stderr, flush=True)
        found = measure(asked.quick)
        results[name] = msgspec.to_builtins(found)
        said.append(f"### {title}\n\n{tables(found)}")
    page = "\n\n".join(said)
    print(page)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))
    if asked.write:
        asked.write.write_text(replace_measured(asked.write.read_text(), page, BEGIN, END))
    return 0


if __name__ == "__main__":
    sys.exit(main())
