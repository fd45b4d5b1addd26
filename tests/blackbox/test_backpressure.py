"""A caller that does not read its stream: the vendor is slowed, and the plane's memory stays where it was."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.caller import headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import Upstreams, text
from tests.providers.vendor import Request, head

EVENT = text("y" * 4_000)
EVENTS_MAX = 12_000
HELD_BYTES_MAX = 24_000_000
"""What the two connections' kernel buffers may take at most; the vendor would send twice as much."""
GROWTH_BYTES_MAX = 16_000_000


class Endless:
    """A vendor's stream that goes on for as long as anybody takes it."""

    def __init__(self) -> None:
        self.sent_bytes = 0

    async def __call__(self, writer: asyncio.StreamWriter, _: Request) -> None:
        writer.write(head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked"))
        for _event in range(EVENTS_MAX):
            writer.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
            await writer.drain()
            self.sent_bytes += len(EVENT)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def stalled(endless: Endless) -> int:
    """Wait until the vendor can send no more; what it has sent."""
    until(lambda: endless.sent_bytes)
    seen = -1
    while seen != endless.sent_bytes:
        seen = endless.sent_bytes
        time.sleep(0.3)
    return seen


def test_a_caller_that_does_not_read_slows_its_vendor(launch: Launch, upstreams: Upstreams) -> None:
    endless = Endless()
    site = launch(bundle.document(purpose("plain", remote("engine", upstreams.open(endless).port))))
    before = resident_bytes(site.plane.pid)
    with site.caller.stream("plain") as streamed:
        seen = stalled(endless)
        assert seen < HELD_BYTES_MAX < EVENTS_MAX * len(EVENT)
        assert resident_bytes(site.plane.pid) - before < GROWTH_BYTES_MAX
        events = streamed.events()
        assert [json.loads(next(events))["choices"][0]["delta"]["content"] for _ in range(2_000)][-1] == "y" * 4_000
        until(lambda: endless.sent_bytes > seen)
    outcome = site.caller.evidence(streamed.request_id)["outcome"]
    assert outcome["reason_code"] == Governed.CANCELLED


def test_a_caller_that_does_not_read_is_given_up_by_its_deadline(
    launch: Launch, upstreams: Upstreams, checks: Checks
) -> None:
    vendor = upstreams.open(Endless())
    site = launch(bundle.document(purpose("plain", remote("engine", vendor.port))))
    begun = time.monotonic()
    with site.caller.stream("plain", headers=headers_of(deadline_ms=1_500)) as streamed:
        checks.outcome(site.caller, streamed.request_id, Governed.DEADLINE_EXPIRED, detail="streaming")
        assert 1.4 < time.monotonic() - begun < 5
        until(lambda: vendor.closed_at)


def test_a_caller_that_reads_again_while_the_plane_stops_hears_why_its_stream_ends(
    launch: Launch, upstreams: Upstreams
) -> None:
    endless = Endless()
    site = launch(bundle.document(purpose("plain", remote("engine", upstreams.open(endless).port))), drain_s=5)
    with ThreadPoolExecutor(1) as threads, site.caller.stream("plain") as streamed:
        stalled(endless)
        ended = threads.submit(site.plane.stop)
        until(lambda: site.folder.rows("SELECT 1 FROM leaf WHERE kind = 'outcome'"))
        *_, last = streamed.events()
        assert json.loads(last)["error"]["code"] == Governed.INTERNAL_ERROR
        assert ended.result() == 0
