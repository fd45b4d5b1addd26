"""A sink that is a hints server elsewhere: the public contract's ReportCacheState and PublishEvent.

1. Order is kept: what is held goes in a stream that is closed and acknowledged before what is evicted goes, and so on.
2. What waits is bounded by the number of blocks. When it is too much, or when a call failed, everything that waits is
   dropped and each replica is told anew, as soon as the server answers: ALL_CLEARED, then all that is known.
3. The contract has no word for *degraded*. A replica in doubt is withdrawn with ALL_CLEARED: a server that ranks it in
   full would send prompts after blocks that nobody vouches for, and what it lacks costs a cache miss. What comes after
   is reported as it comes; when the doubt is over, all that is known is reported again.
4. The server is greeted before anything is sent, and again after every failure, with an eviction of nothing: a wrong
   address, a bad token and a wrong certificate show at once, and nothing is told anew to a server that is not there.
5. Whether it answers, and what it says, is logged when it changes. A refusal is an answer: it is told in the server's
   own words, and waited for like silence, longer each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import grpc
import grpc.aio
import msgspec

from terraflow.hints.feed.telling import SHOWN_MAX, Telling
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.wire.stats import stats_message
from terraflow.hints.wire.stub import Stub
from terraflow.hints.words import Entry, Report, Scope, Stats

UPDATES_MAX = 256
"""Updates of one stream: its acknowledgement is what the next eviction waits for."""
COUNT_MAX = 2**31 - 1
"""What the contract's token counts hold; more is told as that."""
UPDATE_BLOCKS_MAX = 4_096
"""Blocks of one update, far below a message's 4 MiB."""
EVENTS_AT_ONCE = 32
AGAIN_S = (0.2, 30.0)
DEADLINE_S = 30.0
GREETING_S = 5.0

_UNANSWERED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""What gRPC says itself; every other code is the server's word."""
_REFUSES = "refuses"
_BEFORE_REASON = re.compile(r"^[A-Z_]+: (ipv[46]:\S+: )?")

# fmt: off
REMEDIES: tuple[tuple[str, str], ...] = (
    ("CERTIFICATE_VERIFY_FAILED",           "its certificate does not verify: give who signed it with --ca-file"),
    ("Hostname Verification Check",         "its certificate is for another name: give the name it is for in --server"),
    ("WRONG_VERSION_NUMBER",                "it does not speak TLS: leave out --tls and --ca-file"),
    ("Socket closed",                       "it hangs up: if it speaks TLS, give --tls or --ca-file, and --cert-file"
                                            " where it wants a certificate"),
    ("http1.x",                             "something else answers there: give the gRPC port"),
    ("CERTIFICATE_REQUIRED",                "it wants a certificate: give --cert-file and --key-file"),
)
# fmt: on
"""What stands in gRPC's own words, and what to do then."""


class Counters(msgspec.Struct, kw_only=True):
    """What has been sent. `calls_failed` had no answer; `refused` were answered with a refusal."""

    updates: int = 0
    blocks_reported: int = 0
    blocks_evicted: int = 0
    clears: int = 0
    calls_failed: int = 0
    refused: int = 0
    resyncs: int = 0
    overflows: int = 0
    withdrawn: int = 0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and who we are."""

    address: str
    token: str | None = None
    tls: bool = False
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def channel(self) -> grpc.aio.Channel:
        """A channel to it; gRPC reconnects by itself."""
        options = (
            ("grpc.max_reconnect_backoff_ms", 5_000),
            ("grpc.enable_retries", 0),
            ("grpc.keepalive_time_ms", 30_000),
        )
        if not self.tls:
            return grpc.aio.insecure_channel(self.address, options)
        return grpc.aio.secure_channel(
            self.address, grpc.ssl_channel_credentials(self.ca, self.key, self.certificate), options
        )


Message = pb.CacheStateUpdate | pb.CacheEvent


class Greeting(msgspec.Struct, frozen=True):
    """As whom the server is greeted (rule 4)."""

    tenant: str
    model: str
    replica: str


class _Waiting:
    __slots__ = ("blocks", "message")

    def __init__(self, message: Message, blocks: int) -> None:
        self.message = message
        self.blocks = blocks


class RemoteSink:
    """Sends what feeds write. `run` serves it until cancelled."""

    def __init__(
        self,
        target: Target,
        *,
        greeting: Greeting | None = None,
        blocks_max: int = 1_000_000,
        again_s: float = AGAIN_S[0],
    ) -> None:
        self.counters = Counters()
        self.last_error = ""
        """Why the server cannot be told, in one sentence; empty while it can."""
        self.answered = False
        """Whether it has ever answered."""
        self.tell_anew: Callable[[str | None], None] = lambda replica: None
        """Set by who runs the feeds: clears a replica, or all, and writes everything known of it to this sink."""
        self._target = target
        self._greeting = greeting
        self._greeted = greeting is None
        self._unsent = False
        """The last error was of what was sent, and a greeting that passes is not its end."""
        self._telling = Telling(f"the hints server {target.address}")
        self._blocks_max = blocks_max
        self._again_s = again_s
        self._queue: deque[_Waiting] = deque()
        self._blocks = 0
        self._wake = asyncio.Event()
        self._resync = False
        self._anew = False
        self._withdrawn: set[str] = set()
        self._metadata = None if target.token is None else (("authorization", f"Bearer {target.token}"),)

    @property
    def waiting(self) -> int:
        """Messages that have not been acknowledged."""
        return len(self._queue)

    # The sink

    def ingest(self, report: Report) -> None:
        """It holds these blocks."""
        if self._anew and report.replica in self._withdrawn:
            return
        for prefixes, blocks in _prefixes(report.entries):
            update = pb.CacheStateUpdate(
                replica_id=report.replica,
                model_id=report.model,
                tenant_id=report.tenant,
                hash_scheme=report.scheme,
                prefixes=prefixes,
            )
            self._put(update, blocks)

    def evict_many(self, scope: Scope, replica: str, adapter: str | None, hashes: Sequence[bytes]) -> None:
        """It holds these no longer. An event without an adapter would evict under all of them, and so does ours."""
        for prefix_hash in hashes:
            self._put(
                self._event(pb.CacheEvent.PREFIX_EVICTED, scope[0], scope[1], replica, prefix_hash, adapter or ""), 1
            )

    def clear(self, tenant: str, model: str, replica: str) -> None:
        """It holds nothing."""
        self._put(self._event(pb.CacheEvent.ALL_CLEARED, tenant, model, replica), 1)

    def degrade(self, tenant: str, model: str, replica: str) -> None:
        """See rule 3."""
        self.counters.withdrawn += 1
        self._withdrawn.add(replica)
        self.clear(tenant, model, replica)

    def heal(self, tenant: str, model: str, replica: str) -> None:
        """See rule 3."""
        if replica in self._withdrawn:
            self._withdrawn.discard(replica)
            self.tell_anew(replica)

    def stats(self, tenant: str, model: str, replica: str, stats: Stats) -> None:
        """What it says of itself."""
        said = stats_message(replica, stats)
        self._put(pb.CacheStateUpdate(replica_id=replica, model_id=model, tenant_id=tenant, stats=said), 0)

    def register(self, tenant: str, model: str, replica: str, labels: Mapping[str, str]) -> None:
        """The contract has no labels: a server reads them from its own `replicas.yaml`."""

    @staticmethod
    def _event(
        kind: pb.CacheEvent.Type, tenant: str, model: str, replica: str, prefix_hash: bytes = b"", adapter: str = ""
    ) -> pb.CacheEvent:
        return pb.CacheEvent(
            type=kind, replica_id=replica, model_id=model, tenant_id=tenant, prefix_hash=prefix_hash, adapter_id=adapter
        )

    def _put(self, message: Message, blocks: int) -> None:
        self._queue.append(_Waiting(message, blocks))
        self._blocks += blocks
        if self._blocks > self._blocks_max and not self._resync:
            self.counters.overflows += 1
            self._drop()
        self._wake.set()

    def _drop(self) -> None:
        """Drop what waits; everything will be told anew."""
        self._queue.clear()
        self._blocks = 0
        self._resync = True

    # Sending

    async def run(self) -> None:
        """Send until cancelled."""
        waits_s = self._again_s
        async with self._target.channel() as channel:
            stub = Stub(channel)
            while True:
                if self._greeted and not self._queue and not self._resync:
                    self._wake.clear()
                    await self._wake.wait()
                try:
                    await self._greet(stub)
                    # What waits has all gone: of several replicas one may be refused and the others not.
                    if await self._send(stub) and not self._queue:
                        waits_s = self._again_s
                        self._well()
                except (grpc.aio.AioRpcError, TimeoutError) as error:
                    self._ill(error)
                    self._unsent = self._greeted
                    if self._greeted:
                        self._drop()
                    self._greeted = self._greeting is None
                    await asyncio.sleep(waits_s)
                    waits_s = min(waits_s * 2, AGAIN_S[1])

    async def _greet(self, stub: Stub) -> None:
        """Rule 4. A token for some of an engine's ranks alone may not greet for it, and may report all the same."""
        greeting = self._greeting
        if self._greeted or greeting is None:
            return
        event = self._event(pb.CacheEvent.PREFIX_EVICTED, greeting.tenant, greeting.model, greeting.replica)
        try:
            await stub.PublishEvent(event, metadata=self._metadata, timeout=GREETING_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.PERMISSION_DENIED:
                raise
            self._ill(error)
        else:
            if not self._unsent or not self.last_error.startswith(_REFUSES):
                self._well()
        self._greeted = True

    def _well(self) -> None:
        if self.last_error or not self.answered:
            self._telling.say(logging.INFO, "answers")
        self.answered, self.last_error, self._unsent = True, "", False

    def _ill(self, error: grpc.aio.AioRpcError | TimeoutError) -> None:
        answered, why = _why(error)
        if answered:
            self.answered = True
            self.counters.refused += 1
        else:
            self.counters.calls_failed += 1
        if why != self.last_error:
            self.last_error = why
            self._telling.say(logging.WARNING, why)

    async def _send(self, stub: Stub) -> bool:
        """Send what waits first; whether the server was told something."""
        if self._resync:
            self._tell_everything()
        if not self._queue:
            return False
        updates = self._run(lambda message: isinstance(message, pb.CacheStateUpdate), UPDATES_MAX)
        if updates:
            sent = [one.message for one in updates]
            call = stub.ReportCacheState(metadata=self._metadata, timeout=DEADLINE_S)
            # A call that has ended takes no more, and says why when it is awaited.
            with contextlib.suppress(asyncio.InvalidStateError):
                for message in sent:
                    await call.write(message)
            await call.done_writing()
            acks = [await call]
            self.counters.updates += len(sent)
            self.counters.blocks_reported += sum(one.blocks for one in updates)
        else:
            events = self._run(_is_eviction, EVENTS_AT_ONCE) or [self._take()]
            calls = [stub.PublishEvent(one.message, metadata=self._metadata, timeout=DEADLINE_S) for one in events]
            acks = list(await asyncio.gather(*calls))
            evictions = sum(_is_eviction(one.message) for one in events)
            self.counters.blocks_evicted += evictions
            self.counters.clears += len(events) - evictions
        self.counters.refused += sum(1 for ack in acks if not ack.accepted)
        return True

    def _tell_everything(self) -> None:
        """Rule 2: what is withdrawn stays so."""
        self.counters.resyncs += 1
        self._drop()
        self._anew = True
        try:
            self.tell_anew(None)
        finally:
            self._anew = self._resync = False

    def _run(self, alike: Callable[[Message], bool], most: int) -> list[_Waiting]:
        """What waits first, as far as it may go together."""
        run: list[_Waiting] = []
        while self._queue and len(run) < most and alike(self._queue[0].message):
            run.append(self._take())
        return run

    def _take(self) -> _Waiting:
        one = self._queue.popleft()
        self._blocks -= one.blocks
        return one


def _why(error: grpc.aio.AioRpcError | TimeoutError) -> tuple[bool, str]:
    """Whether the server has answered, and what is wrong, in one sentence."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return False, "does not answer in time"
    code, details = error.code(), " ".join((error.details() or "").split())[:SHOWN_MAX]
    if code not in _UNANSWERED:
        return True, f"{_REFUSES}: {code.name}: {details}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return False, "does not answer in time"
    remedy = next((remedy for mark, remedy in REMEDIES if mark in details), "")
    # What gRPC puts before the reason is the same for every one: a code of its own, and our address.
    reason = _BEFORE_REASON.sub("", details.rpartition("last error: ")[2])
    return False, f"does not answer: {remedy or reason or code.name}"


def _is_eviction(message: Message) -> bool:
    return isinstance(message, pb.CacheEvent) and message.type == pb.CacheEvent.PREFIX_EVICTED


def _prefixes(entries: Sequence[Entry]) -> Iterator[tuple[list[pb.PrefixEntry], int]]:
    """The entries as the contract has them, in updates of a bounded size. A chain's counts are those of each block
    alone; what is no chain goes hash by hash."""
    prefixes: list[pb.PrefixEntry] = []
    blocks = 0
    for entry in entries:
        for start in range(0, len(entry.hashes), UPDATE_BLOCKS_MAX):
            hashes = entry.hashes[start : start + UPDATE_BLOCKS_MAX]
            counts = [min(count, COUNT_MAX) for count in entry.counts[start : start + UPDATE_BLOCKS_MAX]]
            alone = [counts[0], *(after - before for before, after in pairwise(counts))]
            if min(alone) > 0:
                prefixes.append(
                    pb.PrefixEntry(
                        block_hashes=hashes,
                        block_token_counts=alone,
                        tier=entry.tier,  # type: ignore[arg-type]
                        adapter_id=entry.adapter,
                    )
                )
            else:
                prefixes += [
                    pb.PrefixEntry(
                        prefix_hash=prefix_hash,
                        token_count=count,
                        tier=entry.tier,  # type: ignore[arg-type]
                        adapter_id=entry.adapter,
                    )
                    for prefix_hash, count in zip(hashes, counts, strict=True)
                ]
            blocks += len(hashes)
            if blocks >= UPDATE_BLOCKS_MAX:
                yield prefixes, blocks
                prefixes, blocks = [], 0
    if prefixes:
        yield prefixes, blocks
