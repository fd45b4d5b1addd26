"""The eight RPCs, as methods for the HTTP/2 server.

1. A lookup never fails: who may not ask, what is malformed and what breaks is answered without a hint.
2. LookupRoute runs inside the read that brought it. Only a long prompt text, which takes milliseconds to tokenize, is
   put through the tokenizer in a thread first.
3. A producer is held to its tenants and replicas with every message: PERMISSION_DENIED. Without an identity, where
   one is needed, it is UNAUTHENTICATED.
4. The probe's tenant is the service's own: what strangers say of it is acknowledged and dropped, what they ask of it
   is empty.
5. One piece of a report is taken in, whoever sent it, and then all others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from terraflow.hints.disagg import PDQuery
from terraflow.hints.http2.call import Call
from terraflow.hints.http2.methods import ClientStream, Inline, Methods, ServerStream, Unary
from terraflow.hints.http2.status import GrpcError, Status
from terraflow.hints.live import LiveHints
from terraflow.hints.lookup import Answer, Query, Tokenizers
from terraflow.hints.policy.policies import Policies
from terraflow.hints.render import render_template
from terraflow.hints.service.identity import NOBODY, Caller, Identities, TokenInvalid, names_of
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.parse import longer, parse_query, parse_reports
from terraflow.hints.service.streams import Changes, metrics_now_and_then, wanted
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.words import IDENTIFIER_BYTES_MAX, PROBE_TENANT, Report, Scope, Tier

SERVICE = "inferencecache.v1alpha1.InferenceCache"
REPORT_STREAMS_MAX = 1_024
WATCH_STREAMS_MAX = 64
LONG_TEXT = 2_048
"""Characters that are tokenized within a millisecond, more or less."""
TOKENIZING_MAX = 16
"""Long texts in threads at a time; one more is answered without a hint at once."""


class Tokenized:
    """A tokenizer for the one text that has been through the real one."""

    def __init__(self, token_ids: Sequence[int] | None) -> None:
        self._token_ids = token_ids

    def prompt(self, model: str, text: str) -> Sequence[int] | None:
        """What came of it."""
        return self._token_ids


class HintService:
    """The RPCs over the live hints."""

    def __init__(
        self,
        live: LiveHints,
        identities: Identities,
        metrics: Metrics,
        *,
        namespace_key: bytes | None = None,
        remember: bool = False,
        report_streams_max: int = REPORT_STREAMS_MAX,
        watch_streams_max: int = WATCH_STREAMS_MAX,
    ) -> None:
        """`remember`: what is answered counts as sent, in the assignment memory."""
        self.live = live
        self.metrics = metrics
        self._identities = identities
        self._namespace_key = namespace_key
        self._remember = remember
        self._changes = Changes(live, metrics)
        self._tokenizing = 0
        self._turn = asyncio.Lock()
        self._streams_max = {"reports": report_streams_max, "events": watch_streams_max, "metrics": watch_streams_max}

    def methods(self) -> Methods:
        """The server's table."""
        return {
            f"/{SERVICE}/LookupRoute": Inline(
                self.lookup_route,
                pb.LookupRouteRequest.FromString,
                pb.LookupRouteResponse.SerializeToString,
                self.lookup_long_text,
            ),
            f"/{SERVICE}/LookupPDRoute": Inline(
                self.lookup_pd_route, pb.LookupPDRouteRequest.FromString, pb.LookupPDRouteResponse.SerializeToString
            ),
            f"/{SERVICE}/RenderTemplate": Unary(
                self.render_template, pb.RenderTemplateRequest.FromString, pb.RenderTemplateResponse.SerializeToString
            ),
            f"/{SERVICE}/GetCacheState": Unary(
                self.get_cache_state, pb.GetCacheStateRequest.FromString, pb.GetCacheStateResponse.SerializeToString
            ),
            f"/{SERVICE}/PublishEvent": Unary(self.publish_event, pb.CacheEvent.FromString, pb.Ack.SerializeToString),
            f"/{SERVICE}/ReportCacheState": ClientStream(
                self.report_cache_state, pb.CacheStateUpdate.FromString, pb.Ack.SerializeToString
            ),
            f"/{SERVICE}/StreamCacheEvents": ServerStream(
                self.stream_cache_events, pb.StreamEventsRequest.FromString, pb.CacheEvent.SerializeToString
            ),
            f"/{SERVICE}/StreamMetrics": ServerStream(
                self.stream_metrics, pb.StreamMetricsRequest.FromString, pb.Metric.SerializeToString
            ),
        }

    # Reads

    def lookup_route(self, request: pb.LookupRouteRequest, call: Call) -> pb.LookupRouteResponse:
        """Which replicas hold the prefix (rule 1)."""
        live = self.live
        begun = live.clock.monotonic()
        foreign = not self._reader(call).sees(request.tenant_id)
        query = parse_query(request, foreign=foreign)
        answer = live.lookup(query, call.deadline)
        if self._remember and answer.scored:
            self._assume_sent(query, answer)
        return self._answered(request.model_id, answer, begun)

    def _assume_sent(self, query: Query, answer: Answer) -> None:
        """Count the request as sent to the first replica; nobody will tell when it ends."""
        live, best = self.live, answer.scored[0]
        if live.assigned is not None:
            scope, tokens = Scope(query.tenant, query.model, query.scheme), sum(query.block_token_counts)
            live.assigned.sent(
                scope,
                query.adapter,
                best.replica,
                query.block_hashes,
                max(0, tokens - best.matched_tokens),
                live.clock.monotonic(),
            )

    def lookup_long_text(
        self, request: pb.LookupRouteRequest, call: Call
    ) -> Coroutine[Any, Any, pb.LookupRouteResponse] | None:
        """The lookup of a text that takes long to tokenize; None for any other."""
        text, tokenizers = request.prompt_text, self.live.tokenizers
        if len(text) < LONG_TEXT or tokenizers is None or request.prefix_hash or request.token_ids:
            return None
        if request.block_hashes and self.live.policies.policy(request.tenant_id).chain_matching:
            return None
        foreign = not self._reader(call).sees(request.tenant_id)
        return None if foreign else self._tokenized(request, tokenizers, call)

    async def _tokenized(
        self, request: pb.LookupRouteRequest, tokenizers: Tokenizers, call: Call
    ) -> pb.LookupRouteResponse:
        begun = self.live.clock.monotonic()
        token_ids: Sequence[int] | None = None
        if self._tokenizing < TOKENIZING_MAX:
            self._tokenizing += 1
            try:
                token_ids = await asyncio.to_thread(tokenizers.prompt, request.model_id, request.prompt_text)
            finally:
                self._tokenizing -= 1
        else:
            self.metrics.refused["tokenizing"] += 1
        answer = self.live.lookup(parse_query(request, foreign=False), call.deadline, Tokenized(token_ids))
        return self._answered(request.model_id, answer, begun)

    def _answered(self, model: str, answer: Answer, begun: float) -> pb.LookupRouteResponse:
        response = pb.LookupRouteResponse(reason_code=answer.reason, adapter_id=answer.adapter)
        add = response.replica_scores.add
        for replica, score, matched, probability, tier in answer.scored:
            add(
                replica_id=replica,
                score=score,
                matched_tokens=matched,
                estimated_cache_hit_prob=probability,
                tier=tier if tier <= Tier.REMOTE else 0,
            )
        if answer.token_ids:
            response.token_ids.extend(answer.token_ids)
        seconds = self.live.clock.monotonic() - begun
        response.lookup_latency_us = int(seconds * 1e6)
        self.metrics.observe_lookup(model, answer.reason, bool(answer.scored), seconds)
        return response

    def lookup_pd_route(self, request: pb.LookupPDRouteRequest, call: Call) -> pb.LookupPDRouteResponse:
        """The prefill and the decode replica (rule 1). A topology belongs to the tenant whose namespace it is in."""
        reader = self._reader(call)
        foreign = not (reader.sees(request.tenant_id) and reader.sees(_owner(request.pd_topology_ref)))
        query = PDQuery(
            topology=request.pd_topology_ref,
            tenant=request.tenant_id,
            model=request.model_id,
            prefix_hash=request.prefix_hash,
            prefix_token_count=request.prefix_token_count,
            foreign=foreign,
        )
        route = self.live.pd_route(query, call.deadline)
        self.metrics.pd_routes[route.reason, route.cause] += 1
        return pb.LookupPDRouteResponse(
            prefill_replica_id=route.prefill,
            decode_replica_id=route.decode,
            transport_hint=route.transport,
            reason_code=route.reason,
        )

    async def render_template(self, request: pb.RenderTemplateRequest, call: Call) -> pb.RenderTemplateResponse:
        """A template, filled. A tenant that is not the caller's has no templates."""
        policies = self.live.policies
        tenant, reader = request.tenant_id, self._reader(call)
        seen = reader.sees(tenant) and reader.sees(_owner(request.template_ref))
        if not seen or longer(tenant, IDENTIFIER_BYTES_MAX):
            policies = Policies()
        rendered = render_template(request.template_ref, request.variables, tenant, policies, self._namespace_key)
        self.metrics.renders[rendered.reason] += 1
        return pb.RenderTemplateResponse(
            rendered_prompt=rendered.prompt,
            stable_prefix_hash=rendered.stable_prefix_hash,
            tenant_namespace=rendered.tenant_namespace,
            reason_code=rendered.reason,
            template_revision=rendered.revision,
        )

    async def get_cache_state(self, request: pb.GetCacheStateRequest, call: Call) -> pb.GetCacheStateResponse:
        """What replicas last said of themselves; the empty aggregate of what is not the caller's."""
        response = pb.GetCacheStateResponse(summary=pb.CacheSummary())
        tenant, model = request.tenant_id, request.model_id
        if tenant == PROBE_TENANT or not self._reader(call).sees(tenant):
            return response
        index, now = self.live.index, self.live.clock.monotonic()
        for state in index.states(tenant, model, now):
            stats = state.stats
            if stats is not None:
                response.replicas.add(
                    replica_id=state.replica,
                    cache_memory_bytes=stats.cache_memory_bytes,
                    hit_rate=stats.hit_rate,
                    pressure=stats.pressure,
                    client_version=stats.client_version,
                    t2_hit_tokens=stats.t2_hit_tokens,
                    t2_query_tokens=stats.t2_query_tokens,
                )
        response.summary.total_prefixes = index.keys(tenant, model)
        response.summary.hot_prefixes = index.hot(tenant, model, now)
        return response

    async def stream_cache_events(self, request: pb.StreamEventsRequest, call: Call) -> AsyncIterator[pb.CacheEvent]:
        """Changes of the index from now on."""
        caller = self._reader(call)
        with self._open("events"):
            async with aclosing(self._changes.read(wanted(request, caller))) as events:
                async for event in events:
                    yield event

    async def stream_metrics(self, request: pb.StreamMetricsRequest, call: Call) -> AsyncIterator[pb.Metric]:
        """The metrics at once, then at intervals."""
        caller = self._reader(call)
        with self._open("metrics"):
            async with aclosing(metrics_now_and_then(request, caller, self.live, self.metrics)) as series:
                async for metric in series:
                    yield metric

    # Writes

    async def publish_event(self, event: pb.CacheEvent, call: Call) -> pb.Ack:
        """One change of one replica's cache."""
        self._admit(self._producer(call), event.tenant_id, event.replica_id)
        if event.tenant_id != PROBE_TENANT:
            self._apply(event)
        return pb.Ack(accepted=True)

    def _apply(self, event: pb.CacheEvent) -> None:
        tenant, model, replica = event.tenant_id, event.model_id, event.replica_id
        if not (tenant and model and replica):
            self.metrics.dropped["incomplete"] += 1
            return
        kind = event.type
        if kind == pb.CacheEvent.PREFIX_EVICTED:
            if event.prefix_hash:
                self.live.evict(tenant, model, replica, event.prefix_hash, event.adapter_id or None)
        elif kind == pb.CacheEvent.ALL_CLEARED:
            self.live.clear(tenant, model, replica)
        elif kind == pb.CacheEvent.REPLICA_UPDATED:
            self.live.refresh(tenant, model, replica)
        elif kind != pb.CacheEvent.PREFIX_ADDED:
            self.metrics.events["unknown"] += 1
            return
        self.metrics.events[pb.CacheEvent.Type.Name(kind)] += 1

    async def report_cache_state(self, updates: AsyncIterator[pb.CacheStateUpdate], call: Call) -> pb.Ack:
        """What replicas hold and how they are; acknowledged once the producer has closed its side."""
        caller = self._producer(call)
        metrics = self.metrics
        with self._open("reports"):
            async for update in updates:
                self._admit(caller, update.tenant_id, update.replica_id)
                if update.tenant_id == PROBE_TENANT:
                    metrics.dropped["probe_tenant"] += 1
                    continue
                reports = parse_reports(update, self.live.clock.now(), metrics.dropped)
                while await self._ingest_piece(reports):
                    pass
        return pb.Ack(accepted=True)

    async def _ingest_piece(self, reports: Iterator[Report]) -> bool:
        """Take in the next piece, if there is one, in a turn of its own."""
        async with self._turn:
            report = next(reports, None)
            if report is None:
                return False
            self.metrics.count(self.live.ingest(report))
            await asyncio.sleep(0)
        return True

    # Who may

    def _caller(self, call: Call) -> Caller:
        authorization = call.get("authorization")
        certificate = call.peer.certificate
        if authorization is None and certificate is None:
            return self._identities.anonymous
        if isinstance(authorization, bytes):
            raise TokenInvalid("the authorization header is not text")
        names = () if certificate is None else names_of(certificate)
        return self._identities.caller(authorization, names, self.live.clock.now() / 1e6)

    def _reader(self, call: Call) -> Caller:
        try:
            return self._caller(call)
        except TokenInvalid:
            self.metrics.refused["token"] += 1
            return NOBODY

    def _producer(self, call: Call) -> Caller:
        try:
            caller = self._caller(call)
        except TokenInvalid as error:
            self.metrics.refused["token"] += 1
            raise GrpcError(Status.UNAUTHENTICATED, str(error)) from None
        if caller.produces:
            return caller
        self.metrics.refused["no_producer"] += 1
        if caller.known:
            raise GrpcError(Status.PERMISSION_DENIED, "this identity may read, and report for no replica")
        raise GrpcError(Status.UNAUTHENTICATED, "producers need a client certificate or a token")

    def _admit(self, caller: Caller, tenant: str, replica: str) -> None:
        if not caller.may_report(tenant, replica):
            self.metrics.refused["foreign"] += 1
            raise GrpcError(Status.PERMISSION_DENIED, "this identity may not report for that tenant and replica")

    @contextmanager
    def _open(self, kind: str) -> Iterator[None]:
        opened = self.metrics.streams_open
        most = self._streams_max[kind]
        if opened[kind] >= most:
            self.metrics.refused["streams"] += 1
            raise GrpcError(Status.RESOURCE_EXHAUSTED, f"there are {most} streams of this kind already")
        opened[kind] += 1
        try:
            yield
        finally:
            opened[kind] -= 1


def _owner(reference: str) -> str:
    """The tenant whose namespace `namespace/name` is in."""
    return reference.partition("/")[0]
