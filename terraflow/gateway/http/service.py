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
from collections.abc import Callable

import msgspec

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import RequestId
from terraflow.gateway.faults import place_of
from terraflow.gateway.http import acts, batches, governed, openapi, reads
from terraflow.gateway.http.arrived import Answering, Arrived, Edge
from terraflow.gateway.http.astray import hint
from terraflow.gateway.http.head import parse_head, unknown_name
from terraflow.gateway.http.replies import ungoverned
from terraflow.gateway.http.scrape import MetricsDoor, scrape
from terraflow.gateway.http.wire import Disconnected, Reply, Wire
from terraflow.gateway.mouths.anthropic_messages import MESSAGES
from terraflow.gateway.mouths.invocations import INVOCATIONS
from terraflow.gateway.mouths.mouth import Mouth
from terraflow.gateway.mouths.openai_chat import CHAT
from terraflow.gateway.stages.authenticate import authenticate
from terraflow.ports.store import KeyHolder, StoreUnavailable

log = logging.getLogger("terraflow.http")


class Visit:
    """A request on its way through the steps before governance, and what is known of it so far."""

    __slots__ = ("caller", "request_id", "wire")

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.caller: KeyHolder | None = None
        self.request_id: RequestId | None = None


class Route(msgspec.Struct, frozen=True):
    """What answers a path, and in which shape."""

    answer: Answering
    mouth: Mouth


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
        return await route.answer(self.edge, Arrived(head, caller, request_id, argument, _mouth_at(wire), wire))

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


# fmt: off
ROUTES: dict[tuple[str, str], Route] = {
    ("POST",   "/v1/chat/completions"):      Route(governed.answer,    CHAT),
    ("POST",   "/v1/invocations"):           Route(governed.answer,    INVOCATIONS),
    ("POST",   "/v1/messages"):              Route(governed.answer,    MESSAGES),
    ("POST",   "/v1/messages/count_tokens"): Route(reads.count_tokens, MESSAGES),
    ("GET",    "/v1/models"):                Route(reads.models,       CHAT),
    ("GET",    "/v1/models/*"):              Route(reads.model,        CHAT),
    ("GET",    "/v1/evidence/*"):            Route(reads.evidence,     CHAT),
    ("GET",    "/v1/reviews/*"):             Route(reads.review,       CHAT),
    ("DELETE", "/v1/requests/*"):            Route(acts.cancel,        CHAT),
    ("POST",   "/v1/files"):                 Route(batches.upload,     CHAT),
    ("GET",    "/v1/files/*"):               Route(batches.file,       CHAT),
    ("DELETE", "/v1/files/*"):               Route(batches.drop,       CHAT),
    ("GET",    "/v1/files/*/content"):       Route(batches.content,    CHAT),
    ("POST",   "/v1/batches"):               Route(batches.create,     CHAT),
    ("GET",    "/v1/batches"):               Route(batches.batches,    CHAT),
    ("GET",    "/v1/batches/*"):             Route(batches.batch,      CHAT),
    ("POST",   "/v1/batches/*/cancel"):      Route(batches.cancel,     CHAT),
    ("POST",   "/v1/requests/*/feedback"):   Route(acts.give_feedback, CHAT),
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
