"""The eight RPCs, as methods for the HTTP/2 server; those that write are in `writes`.

1. A lookup never fails: who may not ask, what is malformed and what breaks is answered without a hint.
2. LookupRoute runs inside the read that brought it. Only a long prompt text, which takes milliseconds to tokenize, is
   put through the tokenizer in a thread first, and what is larger than prompts are is answered in turns (`large`).
3. What is not the caller's is answered as if it were not there; of the probe's tenant everything is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from terraflow.core.reasons import Lookup
from terraflow.hints.deciding.disagg import PDQuery
from terraflow.hints.deciding.lookup import Answer
from terraflow.hints.deciding.question import Query, Tokenizers
from terraflow.hints.http2.call import Call
from terraflow.hints.http2.methods import ClientStream, Inline, Methods, ServerStream, Unary
from terraflow.hints.live import LiveHints
from terraflow.hints.policy.policies import Policies
from terraflow.hints.render import render_template
from terraflow.hints.service.access import Access
from terraflow.hints.service.identity import NOBODY, Identities
from terraflow.hints.service.large import LARGE_TOKENS, LargeLookups, is_large, keys_in_turns
from terraflow.hints.service.metrics import Metrics
from terraflow.hints.service.parse import parse_query
from terraflow.hints.service.streams import Changes, metrics_now_and_then, wanted
from terraflow.hints.service.writes import Writes
from terraflow.hints.wire import inferencecache_pb2 as pb
from terraflow.hints.wire.stats import stats_message
from terraflow.hints.words import IDENTIFIER_BYTES_MAX, PROBE_TENANT, Scope, Tier, longer

SERVICE = "inferencecache.v1alpha1.InferenceCache"
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
        report_streams_max: int,
        watch_streams_max: int,
    ) -> None:
        """`remember`: what is answered counts as sent, in the assignment memory."""
        self.live = live
        self.metrics = metrics
        self._access = Access(identities, metrics, live.clock, report_streams_max, watch_streams_max)
        self._writes = Writes(live, metrics, self._access)
        self._namespace_key = namespace_key
        self._remember = remember
        self._changes = Changes(live, metrics)
        self._tokenizing = 0
        self._large = LargeLookups()

    def methods(self) -> Methods:
        """The server's table."""
        return {
            f"/{SERVICE}/LookupRoute": Inline(
                self.lookup_route,
                pb.LookupRouteRequest.FromString,
                pb.LookupRouteResponse.SerializeToString,
                self.lookup_later,
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
            f"/{SERVICE}/PublishEvent": Unary(
                self._writes.publish_event, pb.CacheEvent.FromString, pb.Ack.SerializeToString
            ),
            f"/{SERVICE}/ReportCacheState": ClientStream(
                self._writes.report_cache_state, pb.CacheStateUpdate.FromString, pb.Ack.SerializeToString
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
        foreign = not self._access.reader(call).sees(request.tenant_id)
        query = parse_query(request, foreign=foreign)
        return self._looked_up(query, call.deadline, begun)

    def _looked_up(
        self, query: Query, deadline: float | None, begun: float, tokenizer: Tokenizers | None = None
    ) -> pb.LookupRouteResponse:
        answer = self.live.lookup(query, deadline, tokenizer)
        if self._remember and answer.scored:
            self._assume_sent(query, answer)
        return self._answered(query.model, answer, begun)

    def _assume_sent(self, query: Query, answer: Answer) -> None:
        """Count the request as sent to the first replica; nobody will tell when it ends."""
        memory, best, asked = self.live.grounds.assigned, answer.scored[0], answer.asked
        if memory is not None:
            scope, left = Scope(query.tenant, query.model, query.scheme), max(0, asked.tokens - best.matched_tokens)
            memory.sent(scope, query.adapter, best.replica, asked.hashes, left, self.live.clock.monotonic())

    def lookup_later(
        self, request: pb.LookupRouteRequest, call: Call
    ) -> Coroutine[Any, Any, pb.LookupRouteResponse] | None:
        """The lookup of a text that takes long to tokenize, and a large one; None for any other."""
        if is_large(request):
            return self._in_turns(request, call) if self._access.reader(call).sees(request.tenant_id) else None
        text, tokenizers = request.prompt_text, self.live.grounds.tokenizers
        if len(text) < LONG_TEXT or tokenizers is None or request.prefix_hash or request.token_ids:
            return None
        if request.block_hashes and self.live.grounds.policies.policy(request.tenant_id).chain_matching:
            return None
        foreign = not self._access.reader(call).sees(request.tenant_id)
        return None if foreign else self._tokenized(request, tokenizers, call)

    async def _in_turns(self, request: pb.LookupRouteRequest, call: Call) -> pb.LookupRouteResponse:
        begun = self.live.clock.monotonic()
        deadline = self.live.deadline(request.tenant_id, begun, call.deadline)
        reason = Lookup.TIMEOUT
        try:
            async with self._large.turn(call.peer.address, None if deadline is None else deadline - begun) as taken:
                if taken:
                    query = parse_query(request, foreign=False)
                    if request.token_ids:
                        query.keys = await keys_in_turns(request.token_ids, self.live.grounds.block_tokens)
                    return self._looked_up(query, deadline, begun)
                self.metrics.refused["large"] += 1
                reason = Lookup.NO_HINT
        except TimeoutError:
            pass
        return self._answered(request.model_id, Answer(reason=reason, scored=[]), begun)

    async def _tokenized(
        self, request: pb.LookupRouteRequest, tokenizers: Tokenizers, call: Call
    ) -> pb.LookupRouteResponse:
        begun = self.live.clock.monotonic()
        deadline = self.live.deadline(request.tenant_id, begun, call.deadline)
        token_ids: Sequence[int] | None = None
        if self._tokenizing < TOKENIZING_MAX:
            self._tokenizing += 1
            try:
                token_ids = await asyncio.to_thread(tokenizers.prompt, request.model_id, request.prompt_text)
            finally:
                self._tokenizing -= 1
        else:
            self.metrics.refused["tokenizing"] += 1
        query = parse_query(request, foreign=False)
        if token_ids is not None and len(token_ids) > LARGE_TOKENS:
            query.keys = await keys_in_turns(token_ids, self.live.grounds.block_tokens)
        return self._looked_up(query, deadline, begun, Tokenized(token_ids))

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
        reader = self._access.reader(call)
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
        policies = self.live.grounds.policies
        tenant, reader = request.tenant_id, self._access.reader(call)
        seen = reader.sees(tenant) and reader.sees(_owner(request.template_ref))
        if not seen or longer(tenant, IDENTIFIER_BYTES_MAX):
            policies = Policies()
        rendered = render_template(request.template_ref, request.variables, tenant, policies, self._namespace_key)
        self.metrics.renders[rendered.reason, rendered.cause] += 1
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
        if tenant == PROBE_TENANT or not self._access.reader(call).sees(tenant):
            return response
        index, now = self.live.index, self.live.clock.monotonic()
        for state in index.states(tenant, model, now):
            if state.stats is not None:
                response.replicas.append(stats_message(state.replica, state.stats))
        response.summary.total_prefixes = index.keys(tenant, model)
        response.summary.hot_prefixes = index.hot(tenant, model, now)
        return response

    async def stream_cache_events(self, request: pb.StreamEventsRequest, call: Call) -> AsyncIterator[pb.CacheEvent]:
        """Changes of the index from now on."""
        caller = self._access.reader(call)
        with self._access.open_stream("events"):
            async with aclosing(self._changes.read(wanted(request, caller))) as events:
                async for event in events:
                    # Asked again with each: a token may expire while its stream is open.
                    if not self._access.reader(call).sees(event.tenant_id):
                        return
                    yield event

    async def stream_metrics(self, request: pb.StreamMetricsRequest, call: Call) -> AsyncIterator[pb.Metric]:
        """The metrics at once, then at intervals."""
        caller = self._access.reader(call)
        with self._access.open_stream("metrics"):
            async with aclosing(metrics_now_and_then(request, caller, self.live, self.metrics)) as series:
                async for metric in series:
                    if caller.known and self._access.reader(call) is NOBODY:
                        return
                    yield metric


def _owner(reference: str) -> str:
    """The tenant whose namespace `namespace/name` is in."""
    return reference.partition("/")[0]
