"""The plane's HTTP service: the steps before governance, and what is answered without a key.

1. Steps 1 to 3 happen here: authenticate, give the request id, parse. Their errors are the model API's own, in the
   body alone; nothing is governed or charged.
2. A governed request runs in a task of its own; its wire says when the caller leaves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import RequestId
from terraflow.gateway.faults import place_of
from terraflow.gateway.http import openapi
from terraflow.gateway.http.arrived import Arrived, Edge
from terraflow.gateway.http.astray import hint
from terraflow.gateway.http.head import parse_head, unknown_name
from terraflow.gateway.http.replies import shed_at_the_step, ungoverned
from terraflow.gateway.http.routes import ROUTES, mouth_at, split
from terraflow.gateway.http.scrape import MetricsDoor, scrape
from terraflow.gateway.http.wire import Disconnected, Reply, Wire
from terraflow.gateway.stages.authenticate import Keys
from terraflow.ports.store import KeyHolder, StoreUnavailable

log = logging.getLogger("terraflow.http")


class Visit:
    """A request on its way through the steps before governance, and what is known of it so far."""

    __slots__ = ("caller", "request_id", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.caller: KeyHolder | None = None
        self.request_id: RequestId | None = None


class Service:
    """What one plane does with a request."""

    def __init__(
        self,
        edge: Edge,
        trusted: Callable[[str], bool],
        unsigned: Callable[[], str | None],
        metrics: MetricsDoor | None = None,
    ) -> None:
        self.plane = edge.plane
        self.edge = edge
        self.draining = False
        self._trusted = trusted
        self._unsigned = unsigned
        self._keys = Keys(self.plane.store)
        self._metrics = metrics

    async def handle(self, wire: Wire) -> None:
        """Answer one request."""
        visit = Visit(wire)
        answer: Reply | Refuse | None
        try:
            answer = await self._answer(visit)
        except Disconnected:
            return
        except StoreUnavailable:
            answer = Refuse(reason=Governed.EVIDENCE_UNAVAILABLE)
        except Exception as fault:
            # Before governance, or behind a governed answer whose record is closed: the text stays out of the log.
            log.error("a request failed: %s", place_of(fault))
            answer = Refuse(reason=Governed.INTERNAL_ERROR)
        if isinstance(answer, Refuse):
            self.plane.telemetry.turned_away(answer, visit.request_id, visit.caller)
            answer = ungoverned(answer, visit.request_id, mouth_at(wire))
        if answer is not None:
            wire.reply(answer)

    async def _answer(self, visit: Visit) -> Reply | Refuse | None:
        wire = visit.wire
        if wire.client is not None and not self._trusted(wire.client) and not _is_local_probe(wire):
            return invalid_request("connection", "must come through a trusted proxy")
        head = parse_head(wire.headers, wire.raw_path)
        if isinstance(head, Refuse):
            return head
        path = wire.raw_path.decode("ascii")
        reading = wire.method in ("GET", "HEAD")
        if reading and (path == "/healthz" or path == "/readyz"):
            return _health(None if path == "/healthz" else self.unready())
        if reading and path == "/openapi.json":
            return Reply(200, [], await asyncio.to_thread(openapi.document))
        if path == "/metrics":
            return await scrape(self._metrics, wire.method, head)
        if not path.startswith("/v1/"):
            return Refuse(reason=ModelApi.NOT_FOUND, hint=hint(path, path, ROUTES))
        caller = await self._keys.authenticate(head.api_key)
        if isinstance(caller, Refuse):
            return caller
        visit.caller = caller
        retry_after_s = await self.plane.doorstep.pass_over(caller.tenant)
        if retry_after_s is not None:
            refuse, reply = shed_at_the_step(retry_after_s, mouth_at(wire))
            self.plane.telemetry.turned_away(refuse, None, caller)
            return reply
        visit.request_id = request_id = self.plane.ids.request_id()
        name, argument = split(path)
        # HEAD is GET without the body, which the wire leaves out.
        route = ROUTES.get(("GET" if wire.method == "HEAD" else wire.method, name))
        if route is None:
            return Refuse(reason=ModelApi.NOT_FOUND, hint=hint(path, name, ROUTES))
        unknown = unknown_name(head)
        if unknown is not None:
            return unknown
        return await route.answer(self.edge, Arrived(head, caller, request_id, argument, mouth_at(wire), wire))

    def unready(self) -> str | None:
        """Why no request should be sent here, in words that anybody may read; None when they may be."""
        if self.draining:
            return "the plane is stopping"
        bundle = self.plane.bundles.active()
        if type(bundle) is not Bundle:
            return "no bundle is in force"
        if bundle.expires_at <= self.plane.clock.now():
            return "the bundle in force has expired"
        return self._unsigned()


def _is_local_probe(wire: Wire) -> bool:
    """Whether it asks for health or metrics from this machine: what runs beside the plane comes through no proxy."""
    return wire.client in ("127.0.0.1", "::1") and wire.raw_path in (b"/healthz", b"/readyz", b"/metrics")


def _health(unready: str | None) -> Reply:
    if unready is None:
        return Reply(200, [], b'{"status":"ok"}')
    return Reply(503, [], msgspec.json.encode({"status": "unready", "reason": unready}))
