"""`terraflow hints replay`: a recorded trace through simulated caches, under several ways to choose the replica.

Exit codes: 0 measured, 2 not asked well (no such file, a line that is none, no such policy).
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terraflow.cli.ending import end
from terraflow.cli.progress import Progress

if TYPE_CHECKING:
    from terraflow.hints.replay.run import Figures
    from terraflow.hints.replay.trace import TraceRequest

TRACE_BYTES_MAX = 1 << 30
_OPENED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def command(
    trace: Annotated[
        Path, typer.Argument(help="A trace in Mooncake's format, one JSON object a line; also .gz and .xz.")
    ],
    replicas: Annotated[int, typer.Option(min=1, max=1024, help="Simulated replicas.")] = 8,
    blocks: Annotated[int, typer.Option(min=1, max=100_000_000, help="Blocks that each replica's cache holds.")] = 4000,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="round_robin, least_loaded, hashing, hints or oracle; several by commas or again. None: all."
        ),
    ] = None,
    prefill_tokens_per_s: Annotated[float, typer.Option(min=1.0, help="What each replica prefills.")] = 8000.0,
    decode_tokens_per_s: Annotated[
        float, typer.Option(min=0.0, help="How fast each request's output comes; 0: it ends with its first token.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=(1 << 63) - 1, help="Of whatever hashes or takes turns.")] = 0,
    report_pressure: Annotated[
        bool, typer.Option("--report-pressure", help="Replicas report their pressure to the hints.")
    ] = False,
    event_delay_ms: Annotated[
        float, typer.Option(min=0.0, help="How long a cache's change takes to reach the hints.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as a JSON object.")] = False,
) -> None:
    """Compare policies on one trace: hit rate, load imbalance, time to the first token."""
    from terraflow.hints.replay.fleet import Speeds
    from terraflow.hints.replay.run import NAMES, Setting, replay
    from terraflow.hints.replay.trace import TraceFault

    names = [name.replace("-", "_") for said in policy for name in said.split(",")] if policy else list(NAMES)
    for name in names:
        if name not in NAMES:
            end("hints replay", f"--policy {name}: it is one of {', '.join(NAMES)}", 2)
    try:
        requests = _read(trace)
    except TraceFault as fault:
        end("hints replay", f"{trace}, {fault}", 2)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as trouble:
        end("hints replay", f"cannot read {trace}: {getattr(trouble, 'strerror', None) or trouble}", 2)
    setting = Setting(
        replicas=replicas,
        blocks=blocks,
        speeds=Speeds(prefill_tokens_per_s, decode_tokens_per_s),
        seed=seed,
        report_pressure=report_pressure,
        event_delay_ms=event_delay_ms,
    )
    with Progress("requests") as progress:
        figures = replay(requests, setting, names, progress)
    print(_json(figures) if as_json else _table(figures, len(requests)))


def _read(trace: Path) -> list[TraceRequest]:
    from terraflow.hints.replay.trace import TraceFault, parse_trace

    def bounded(lines: Iterable[bytes]) -> Iterator[bytes]:
        size = 0
        for number, line in enumerate(lines, 1):
            size += len(line)
            if size > TRACE_BYTES_MAX:
                raise TraceFault(number, f"more than {TRACE_BYTES_MAX} bytes up to here")
            yield line

    with _OPENED.get(trace.suffix, Path.open)(trace, "rb") as lines:
        return parse_trace(bounded(lines))


def _json(figures: Sequence[Figures]) -> str:
    import msgspec

    return msgspec.json.encode({"policies": figures}).decode()


def _table(figures: Sequence[Figures], requests: int) -> str:
    lines = [f"{'policy':<14}{'hit rate':>10}{'imbalance':>11}{'ttft p50 ms':>13}{'ttft p99 ms':>13}"]
    lines += [
        f"{each.policy:<14}{each.hit_rate:>10.1%}{each.load_imbalance:>11.3f}"
        f"{each.ttft_p50_ms:>13.0f}{each.ttft_p99_ms:>13.0f}"
        for each in figures
    ]
    return "\n".join([*lines, f"{requests} requests"])
