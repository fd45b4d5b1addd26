"""What the classification costs: clean text by size, a typical request in full, and hostile text against median.

Run `python -m bench.classify`. Times are CPU time of the one thread that
scans, best and 99th percentile of repeated runs, in microseconds.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable
from typing import Any

from terraflow.classify.scan import Scanner
from terraflow.classify.surface import collect

BOUND = 4 * 1024 * 1024
MEGABYTE = 1024 * 1024

PROSE = (
    "The committee met on Tuesday 14 March 2023 at half past nine to discuss the harbour's new timetable. Nobody "
    "objected to the earlier ferry, although two members asked whether 35 minutes would be enough to unload. "
)
CODE = (
    "def settle(self, reservation_id: str, actual: int) -> Settlement:\n    row = self._rows.get(reservation_id)\n"
    '    if row is None:\n        raise KeyError(f"no reservation {reservation_id!r}")\n'
    "    return row.post(actual)\n"
)
LOG = (
    '{"time":"2024-05-01T12:30:45.123Z","level":"info","request_id":"550e8400-e29b-41d4-a716-446655440000",'
    '"path":"/v1/orders/981237","status":200,"duration_ms":12.25,"bytes":18233}\n'
)
MARKDOWN = "| item | amount | note |\n| --- | ---: | --- |\n| bolts, M8 | 1200 | see *section 4.2* of the manual |\n\n"
GERMAN = "Die Überprüfung der Lieferung dauerte länger als geplant – „drei Tage“, sagte der Händler. "


def filled(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def ordinary(size: int) -> dict[str, str]:
    return {
        "prose": filled(PROSE, size),
        "code": filled(CODE, size),
        "log": filled(LOG, size),
        "markdown": filled(MARKDOWN, size),
        "german": filled(GERMAN, size),
    }


def hostile(size: int) -> dict[str, str]:
    """Texts made to be slow: near misses of every anchor, and every encoding in small pieces."""
    draw = random.Random(7)

    def many(make: Callable[[], str]) -> str:
        parts, length = [], 0
        while length < size:
            part = make()
            parts.append(part)
            length += len(part)
        return "".join(parts)[:size]

    def digits(count: int) -> str:
        return "".join(draw.choices("0123456789", k=count))

    def base64_of(size: int) -> str:
        return base64.b64encode(draw.randbytes(size)).decode()

    return {
        "digits": filled("4" * 997 + "1", size),
        "cards that fail": many(lambda: f"4{digits(15)} "),
        "grouped cards that fail": many(lambda: f"4{digits(3)} {digits(4)} {digits(4)} {digits(4)},"),
        "spaced digits": filled("4 1 ", size),
        "ibans that fail": many(lambda: f"DE{digits(20)} "),
        "addresses that fail": filled("a@b c@d.e1 ", size),
        "at signs": filled("a@", size),
        "aadhaars that fail": many(lambda: f"2{digits(3)} {digits(4)} {digits(4)},"),
        "phones": many(lambda: f"+{digits(7)} "),
        "short base64": many(lambda: base64_of(12) + " "),
        "long base64": many(lambda: base64_of(3000) + " "),
        "percent": filled("%41%20", size),
        "entities": filled("&#52;&amp;", size),
        "escapes": filled("\\u0034\\x31", size),
        "hex pairs": filled("34 3a ", size),
        "jwt heads": filled("eyJhbGciOiJIUzI1NiJ9.eyJ ", size),
        "token prefixes": filled("ghp_xoxb-sk-proj-glpat-AKIA", size),
        "zero width": filled("4\u200b1\u200b", size),
        "many scripts": "".join(chr(c) for c in range(0xA1, 0xA1 + 0xD000))[: size // 3],
    }


def timed(work: Callable[[], Any], seconds: float = 0.4) -> tuple[float, float]:
    """Best and 99th percentile of the thread's CPU time in the runs that fit into `seconds`, five at least."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    while len(took) < 5 or time.perf_counter() < until:
        start = time.thread_time()
        work()
        took.append((time.thread_time() - start) * 1e6)
    took.sort()
    return took[0], took[int(len(took) * 0.99)]


def chat(size: int) -> dict[str, Any]:
    """A chat request of about `size` bytes: a system prompt, a question, an answer, a question."""
    share = size // 4
    roles = ("system", "user", "assistant", "user")
    return {
        "model": "starter-assistant",
        "messages": [{"role": role, "content": filled(PROSE, share)} for role in roles],
        "temperature": 0.2,
        "max_tokens": 256,
    }


def main() -> None:
    start = time.thread_time()
    scanner = Scanner()
    print(f"compile: {(time.thread_time() - start) * 1e3:.0f} ms")
    for size in (1024, 8192, 16384):
        for name, text in ordinary(size).items():
            best, p99 = timed(lambda text=text: scanner.scan([[], [text]], bytes_max=BOUND), 0.2)
            print(f"scan {size // 1024:>3} KB {name:<10} best {best:>8.1f} µs  p99 {p99:>8.1f} µs")
    for size in (1024, 8192):
        body = chat(size)
        best, p99 = timed(lambda body=body: collect(body))
        print(f"collect      chat {size // 1024} KB: best {best:.1f} µs  p99 {p99:.1f} µs")
        best, p99 = timed(lambda body=body: scanner.scan(collect(body).groups, bytes_max=BOUND))
        print(f"collect+scan chat {size // 1024} KB: best {best:.1f} µs  p99 {p99:.1f} µs")
    costs = {}
    for name, text in ordinary(MEGABYTE).items():
        costs[name], _ = timed(lambda text=text: scanner.scan([[], [text]], bytes_max=BOUND), 0)
        print(f"scan 1 MB {name:<24} {costs[name]:>10.0f} µs")
    median = sorted(costs.values())[len(costs) // 2]
    for name, text in hostile(MEGABYTE).items():
        try:
            best, _ = timed(lambda text=text: scanner.scan([[], [text]], bytes_max=BOUND), 0)
        except Exception as refused:
            print(f"hostile 1 MB {name:<24} {type(refused).__name__}: {refused}")
            continue
        print(f"hostile 1 MB {name:<24} {best:>10.0f} µs = {best / median:.1f} × median")


if __name__ == "__main__":
    main()
