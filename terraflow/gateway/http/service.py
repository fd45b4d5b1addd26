"""The plane's HTTP service: which path does what, and the steps before governance.

1. Steps 1 to 3 happen here: authenticate, give the request id, parse. Their errors are the model API's own, in the
   body alone; nothing is governed or charged.
2. A governed request runs in a task of its own; its wire says when the caller leaves.
3. A route's row names its mouth, whose shape every answer of the route has. An error from before the route is known
   has the shape of the mouth whose path was asked for, whatever the method. Where either vendor's clients ask (models,
   and paths that are none), `anthropic-version`, which Anthropic's always send, says which shape that is.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import RequestId
from terraflow.gateway.batches.desk import Batches
from terraflow.gateway.declaring import combined
from terraflow.gateway.exchange import Declared, Exchange
from terraflow.gateway.faults import place_of
from terraflow.gateway.feedback import BODY_BYTES_MAX as FEEDBACK_BYTES_MAX
from terraflow.gateway.http import acts, batches, openapi, reads
from terraflow.gateway.http.arrived import Arrived, ServiceLimits, read_body
from terraflow.gateway.http.astray import hint
from terraflow.gateway.http.chat import answer_governed
from terraflow.gateway.http.head import parse_declared, parse_head, unknown_name
from terraflow.gateway.http.replies import request_id_headers, ungoverned
from terraflow.gateway.http.scrape import MetricsDoor, scrape
from terraflow.gateway.http.wire import Disconnected, Reply, Wire
from terraflow.gateway.mouths.anthropic_messages import MESSAGES, counted
from terraflow.gateway.mouths.invocations import INVOCATIONS
from terraflow.gateway.mouths.mouth import Declaring, Mouth
from terraflow.gateway.mouths.openai_chat import CHAT
from terraflow.gateway.plane import Plane
from terraflow.gateway.stages.authenticate import authenticate
from terraflow.gateway.turns import LONG_BYTES
from terraflow.ports.store import KeyHolder, StoreUnavailable

log = logging.getLogger("terraflow.http")


class Visit:
    """A request on its way through the steps before governance, and what is known of it so far."""

    __slots__ = ("caller", "request_id", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.caller: KeyHolder | None = None
        self.request_id: RequestId | None = None


Handler = Callable[["Service", Arrived], Awaitable[Reply | Refuse | None]]
"""Answers a request, or refuses it before it is governed; None when it has sent its answer itself."""


class Route(msgspec.Struct, frozen=True):
    """What answers a path, and in which shape."""

    answer: Handler
    mouth: Mouth


class Service:
    """What one plane does with a request."""

    def __init__(
        self,
        plane: Plane,
        limits: ServiceLimits,
        evidence: reads.EvidenceReader,
        trusted: Callable[[str], bool],
        unsigned: Callable[[], str | None],
        desk: Batches,
        metrics: MetricsDoor | None = None,
    ) -> None:
        self.plane = plane
        self.limits = limits
        self.evidence = evidence
        self.desk = desk
        self.feedback_turns = acts.Turns()
        self.draining = False
        self._trusted = trusted
        self._unsigned = unsigned
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
            answer = ungoverned(answer, visit.request_id, _mouth_at(wire))
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
            return Reply(200, [], await asyncio.to_thread(openapi.document, frozenset(ROUTES)))
        if path == "/metrics":
            return await scrape(self._metrics, wire.method, head)
        if not path.startswith("/v1/"):
            return Refuse(reason=ModelApi.NOT_FOUND, hint=hint(wire.method, path, path, ROUTES))
        caller = await authenticate(self.plane.store, head.api_key)
        if isinstance(caller, Refuse):
            return caller
        visit.caller = caller
        visit.request_id = request_id = self.plane.ids.request_id()
        name, argument = _split(path)
        # HEAD is GET without the body, which the wire leaves out.
        route = ROUTES.get(("GET" if wire.method == "HEAD" else wire.method, name))
        if route is None:
            return Refuse(reason=ModelApi.NOT_FOUND, hint=hint(wire.method, path, name, ROUTES))
        unknown = unknown_name(head)
        if unknown is not None:
            return unknown
        return await route.answer(self, Arrived(head, caller, request_id, argument, route.mouth, wire))

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


async def _governed(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    clock = service.plane.clock
    started, received_at = clock.monotonic(), clock.now()
    taken = await _take(service, arrived)
    if isinstance(taken, Refuse):
        return taken
    declared, raw = taken
    limits, mouth = service.limits, arrived.mouth
    parse = partial(mouth.parse, raw, limits.body_values_max)
    request = parse() if len(raw) < LONG_BYTES else await service.plane.turns.take(parse)
    if isinstance(request, Refuse):
        return request
    if isinstance(request, Declaring):
        both = combined(declared, request.declared)
        if isinstance(both, Refuse):
            return both
        declared = both
    x = Exchange.begun(
        arrived.request_id,
        mouth.name,
        arrived.caller,
        declared,
        request,
        raw,
        received_at=received_at,
        started=started,
        deadline_ms_max=limits.deadline_ms_max,
    )
    arrived.wire.on_leave(partial(_left, x))
    return await answer_governed(service.plane, mouth, x, arrived.wire)


async def _take(service: Service, arrived: Arrived, bytes_max: int = sys.maxsize) -> tuple[Declared, bytes] | Refuse:
    """What the head declares, and the body."""
    declared, limits = parse_declared(arrived.head), service.limits
    if isinstance(declared, Refuse):
        return declared
    raw = await read_body(arrived.wire, min(bytes_max, limits.body_bytes_max), limits.body_timeout_s)
    return raw if isinstance(raw, Refuse) else (declared, raw)


def _left(x: Exchange) -> None:
    # A keyed request that is not streamed runs on, so that the retry finds its answer.
    # The key counts from its declaration until it turns out to be another request's.
    waits_for_another = x.key_digest is not None and not x.keyed
    if x.declared.idempotency_key is None or waits_for_another or x.request.stream:
        x.presence.leave()


async def _count_tokens(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    taken = await _take(service, arrived)
    if isinstance(taken, Refuse):
        return taken
    _, raw = taken
    count = partial(counted, raw, service.limits.body_values_max)
    body = count() if len(raw) < LONG_BYTES else await service.plane.turns.take(count)
    if isinstance(body, Refuse):
        return body
    return Reply(200, request_id_headers(arrived.mouth, arrived.request_id), body)


async def _models(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    return reads.models(service.plane, arrived.caller, arrived.request_id, _mouth_at(arrived.wire))


async def _model(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    mouth = _mouth_at(arrived.wire)
    return reads.model(service.plane, arrived.caller, arrived.request_id, arrived.argument, mouth)


async def _evidence(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    plane, reader = service.plane, service.evidence
    return await reads.evidence(plane, reader, arrived.caller, arrived.request_id, arrived.argument)


async def _review(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    return reads.review()


async def _cancel(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    return await acts.cancel(service.plane, arrived.caller, arrived.request_id, arrived.argument)


async def _feedback(service: Service, arrived: Arrived) -> Reply | Refuse | None:
    taken = await _take(service, arrived, FEEDBACK_BYTES_MAX)
    if isinstance(taken, Refuse):
        return taken
    _, raw = taken
    plane, turns = service.plane, service.feedback_turns
    return await acts.give_feedback(plane, turns, arrived.caller, arrived.request_id, arrived.argument, raw)


def _on(answer: batches.Handler) -> Handler:
    """A route of the desk of batches."""

    async def handle(service: Service, arrived: Arrived) -> Reply | Refuse | None:
        return await answer(service.desk, service.limits, arrived)

    return handle


# fmt: off
ROUTES: dict[tuple[str, str], Route] = {
    ("POST",   "/v1/chat/completions"):      Route(_governed,     CHAT),
    ("POST",   "/v1/invocations"):           Route(_governed,     INVOCATIONS),
    ("POST",   "/v1/messages"):              Route(_governed,     MESSAGES),
    ("POST",   "/v1/messages/count_tokens"): Route(_count_tokens, MESSAGES),
    ("GET",    "/v1/models"):                Route(_models,       CHAT),
    ("GET",    "/v1/models/*"):              Route(_model,        CHAT),
    ("GET",    "/v1/evidence/*"):            Route(_evidence,     CHAT),
    ("GET",    "/v1/reviews/*"):             Route(_review,       CHAT),
    ("DELETE", "/v1/requests/*"):            Route(_cancel,       CHAT),
    ("POST",   "/v1/files"):                 Route(_on(batches.upload),  CHAT),
    ("GET",    "/v1/files/*"):               Route(_on(batches.file),    CHAT),
    ("DELETE", "/v1/files/*"):               Route(_on(batches.drop),    CHAT),
    ("GET",    "/v1/files/*/content"):       Route(_on(batches.content), CHAT),
    ("POST",   "/v1/batches"):               Route(_on(batches.create),  CHAT),
    ("GET",    "/v1/batches"):               Route(_on(batches.batches), CHAT),
    ("GET",    "/v1/batches/*"):             Route(_on(batches.batch),   CHAT),
    ("POST",   "/v1/batches/*/cancel"):      Route(_on(batches.cancel),  CHAT),
    ("POST",   "/v1/requests/*/feedback"):   Route(_feedback,     CHAT),
}
# fmt: on
_WITH_ARGUMENT = frozenset(name for _, name in ROUTES if "*" in name)
_MOUTHS = {name.split("/")[2].encode(): route.mouth for (_, name), route in ROUTES.items()}
_MODELS = b"models"


def _mouth_at(wire: Wire) -> Mouth:
    """The mouth of a path, or of the room that it lies in; for models, and where there is none, by rule 3."""
    _, _, below = wire.raw_path.partition(b"/v1/")
    room = below.partition(b"/")[0]
    if room in _MOUTHS and room != _MODELS:
        return _MOUTHS[room]
    return MESSAGES if any(name == b"anthropic-version" for name, _ in wire.headers) else CHAT


def _split(path: str) -> tuple[str, str]:
    """A path's route, and the id at the route's star: `/v1/evidence/req_1` is `("/v1/evidence/*", "req_1")`."""
    parts = path.split("/", 5)
    if len(parts) > 3 and parts[3]:
        name = "/".join((*parts[:3], "*", *parts[4:]))
        if name in _WITH_ARGUMENT:
            return name, parts[3]
    return path, ""


def _is_local_probe(wire: Wire) -> bool:
    """Whether it asks for health or metrics from this machine: what runs beside the plane comes through no proxy."""
    return wire.client in ("127.0.0.1", "::1") and wire.raw_path in (b"/healthz", b"/readyz", b"/metrics")


def _health(unready: str | None) -> Reply:
    if unready is None:
        return Reply(200, [], b'{"status":"ok"}')
    return Reply(503, [], msgspec.json.encode({"status": "unready", "reason": unready}))
