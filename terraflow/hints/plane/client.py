"""The port of `ports.hints` over gRPC: any server of the public contract, ours or another's.

1. A request waits for it at most its deadline, and not at all while it is known not to answer (`breaker`).
2. What was just sent is remembered on this side, since the server need not: it weighs each answer (`routed`), and ranks
   what no replica has reported yet, also while the server is away.
3. Prompts known by a scheme that no engine reports are reported in batches, off every request's path; what does not fit
   the queue is dropped, and so is what the server does not take.
4. Pressure is read in the background, of fleets that have joined and are asked about, and known only as long as it is
   young.
5. That it answers no longer, and that it does again, is a line in the log each; misses have none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from itertools import islice
from typing import Any

import grpc
import grpc.aio

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.feed.telling import SHOWN_MAX, Telling
from terraflow.hints.plane.breaker import Breaker
from terraflow.hints.plane.routed import routed, scope_of
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.wire.stub import Stub
from terraflow.hints.words import PRESSURE_AGE_MAX_S, PROBE_TENANT, Scope
from terraflow.ports.hints import Hint, Prefix, Ranked
from terraflow.ports.runtime import Clock

log = logging.getLogger("terraflow.hints")

REPORTS_MAX = 4_096
REPORTS_TOGETHER = 256
LOST_MAX = 256
REPORT_EVERY_S = 0.1
BACKGROUND_TIMEOUT_S = 2.0
PRESSURE_EVERY_S = 1.0
ANSWER_BYTES_MAX = 1 << 20
RANKED_MAX = 1_024
"""Replicas of an answer that are read: as many as a model may have. What a service answers is not our word."""
SCOPES_MAX = 1_024
"""Pairs of tenant and model whose pressure is read: one a fleet."""

_OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
)
_CODES = {code.value: code for code in Lookup}
_ABSENT = Hint(reason=Lookup.NO_HINT)
_LATE = Hint(reason=Lookup.TIMEOUT)


class RemoteHints:
    """A `ReplicaHints` at an address. Made inside the running loop."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        try_timeout_s: float,
        credentials: grpc.ChannelCredentials | None = None,
        token: str | None = None,
    ) -> None:
        """`try_timeout_s`: in what time a server that was given up must answer to be asked again. `credentials` None:
        plaintext. `token` is sent as a bearer token."""
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        self._stub = Stub(self._channel)
        self._metadata = None if token is None else (("authorization", f"Bearer {token}"),)
        self._clock = clock
        self._try_timeout_s = try_timeout_s
        self._breaker = Breaker()
        self._telling = Telling(f"the hint service {address}")
        self._assigned = Assigned()
        self._reports: deque[tuple[Prefix, str]] = deque(maxlen=REPORTS_MAX)
        self._lost: deque[tuple[str, str, str]] = deque()
        self._joined: set[tuple[str, str, str]] = set()
        self._pressure: dict[tuple[str, str], tuple[float, dict[str, float]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def hint(self, prefix: Prefix, timeout_s: float) -> Hint:
        """See the port."""
        if self._breaker.open:
            return self._with_memory(prefix, _ABSENT)
        hint = await self._ask(lambda: _request(prefix), timeout_s)
        if self._breaker.open:
            self._keep("try", self._try_again)
        return self._with_memory(prefix, hint)

    async def _ask(self, request: Callable[[], pb.LookupRouteRequest], timeout_s: float) -> Hint:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._stub.LookupRoute(request(), timeout=timeout_s, metadata=self._metadata)
            hint = _hint(response)
        except TimeoutError:
            missed, why = _LATE, f"no answer in {timeout_s:g} s"
        except grpc.aio.AioRpcError as error:
            why = f"{error.code().name}, {' '.join((error.details() or '').split())[:SHOWN_MAX]}"
            missed = _LATE if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else _ABSENT
        except Exception as error:
            log.error("a lookup could not be asked: %s", type(error).__name__)
            missed, why = _ABSENT, type(error).__name__
        else:
            if self._breaker.open:
                self._telling.say(logging.INFO, "answers again")
            self._breaker.succeeded()
            return hint
        before = self._breaker.open
        self._breaker.failed()
        if self._breaker.open and not before:
            self._telling.say(logging.WARNING, f"does not answer, and requests go on without its hints: {why}")
        return missed

    def _with_memory(self, prefix: Prefix, hint: Hint) -> Hint:
        return routed(self._assigned, prefix, hint, self._clock.monotonic())

    def pressure(self, tenant: str, model: str) -> dict[str, float]:
        """See the port."""
        known = self._pressure.get((tenant, model))
        if known is None:
            # Of a fleet that has left, requests may still ask.
            if not self._has_joined(tenant, model) or len(self._pressure) >= SCOPES_MAX:
                return {}
            known = self._pressure[tenant, model] = (0.0, {})
        self._keep("pressure", self._read_pressure)
        return known[1] if self._clock.monotonic() - known[0] <= PRESSURE_AGE_MAX_S else {}

    def joined(self, tenant: str, model: str, scheme: str, replicas: Sequence[str]) -> None:
        """See the port; a server of the contract has no word for it, and hears nothing."""
        self._assigned.join(Scope(tenant, model, scheme), replicas)
        if replicas:
            self._joined.add((tenant, model, scheme))
        else:
            self._joined.discard((tenant, model, scheme))
            if not self._has_joined(tenant, model):
                self._pressure.pop((tenant, model), None)

    def _has_joined(self, tenant: str, model: str) -> bool:
        return any(fleet[:2] == (tenant, model) for fleet in self._joined)

    def sent(self, prefix: Prefix, replica: str, matched_tokens: int) -> None:
        """See the port."""
        fresh, now = prefix.tokens - matched_tokens, self._clock.monotonic()
        self._assigned.sent(scope_of(prefix), prefix.adapter, replica, prefix.hashes, fresh, now)

    def ended(self, prefix: Prefix, replica: str, held: bool) -> None:
        """See the port."""
        now = self._clock.monotonic()
        self._assigned.ended(scope_of(prefix), prefix.adapter, replica, prefix.hashes, held, now)
        if held and prefix.unreported and prefix.hashes:
            self._reports.append((prefix, replica))
            self._keep("report", self._report)

    def lost(self, prefix: Prefix, replica: str) -> None:
        """See the port."""
        event = (prefix.tenant, prefix.model, replica)
        self._assigned.lost(*event)
        if event not in self._lost and len(self._lost) < LOST_MAX:
            self._lost.append(event)
            # What waits is of before the loss, and would be told after it.
            left = [(told, by) for told, by in self._reports if (told.tenant, told.model, by) != event]
            self._reports = deque(left, maxlen=REPORTS_MAX)
        self._keep("report", self._report)

    async def close(self) -> None:
        """See the port."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        await self._channel.close()

    def _keep(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let work of this name run, unless it does."""
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.get_running_loop().create_task(work())

    async def _try_again(self) -> None:
        probe = pb.LookupRouteRequest(tenant_id=PROBE_TENANT)
        while self._breaker.open:
            await asyncio.sleep(self._breaker.next_try_s())
            await self._ask(lambda: probe, self._try_timeout_s)

    async def _report(self) -> None:
        await asyncio.sleep(REPORT_EVERY_S)
        while self._lost:
            tenant, model, replica = self._lost.popleft()
            event = pb.CacheEvent(type=pb.CacheEvent.ALL_CLEARED, tenant_id=tenant, model_id=model, replica_id=replica)
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
                async with asyncio.timeout(BACKGROUND_TIMEOUT_S):
                    await self._stub.PublishEvent(event, metadata=self._metadata)
        while self._reports:
            batch = list(islice(self._reports, REPORTS_TOGETHER))
            for _ in batch:
                self._reports.popleft()
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
                async with asyncio.timeout(BACKGROUND_TIMEOUT_S):
                    await self._stub.ReportCacheState(_each(batch), metadata=self._metadata)

    async def _read_pressure(self) -> None:
        while self._pressure:
            for tenant, model in tuple(self._pressure):
                with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
                    request = pb.GetCacheStateRequest(tenant_id=tenant, model_id=model)
                    async with asyncio.timeout(BACKGROUND_TIMEOUT_S):
                        state = await self._stub.GetCacheState(request, metadata=self._metadata)
                    told = {stats.replica_id: stats.pressure for stats in state.replicas}
                    if (tenant, model) in self._pressure:
                        self._pressure[tenant, model] = (self._clock.monotonic(), told)
            await asyncio.sleep(PRESSURE_EVERY_S)


def _request(prefix: Prefix) -> pb.LookupRouteRequest:
    return pb.LookupRouteRequest(
        model_id=prefix.model,
        tenant_id=prefix.tenant,
        hash_scheme=prefix.scheme,
        adapter_id=prefix.adapter,
        block_hashes=prefix.hashes,
        block_token_counts=prefix.counts,
    )


def _hint(response: pb.LookupRouteResponse) -> Hint:
    """A code that is not known counts as no hint, as the contract says."""
    reason = _CODES.get(response.reason_code)
    if reason is None:
        return _ABSENT
    scores = response.replica_scores[:RANKED_MAX]
    ranked = tuple([Ranked(one.replica_id, one.score, max(0, one.matched_tokens)) for one in scores])
    return Hint(reason=reason, ranked=ranked)


def _update(prefix: Prefix, replica: str) -> pb.CacheStateUpdate:
    entry = pb.PrefixEntry(block_hashes=prefix.hashes, block_token_counts=prefix.counts, adapter_id=prefix.adapter)
    return pb.CacheStateUpdate(
        replica_id=replica,
        model_id=prefix.model,
        tenant_id=prefix.tenant,
        hash_scheme=prefix.scheme,
        prefixes=[entry],
        adapter_id=prefix.adapter,
    )


async def _each(held: Sequence[tuple[Prefix, str]]) -> AsyncIterator[pb.CacheStateUpdate]:
    for prefix, replica in held:
        yield _update(prefix, replica)
