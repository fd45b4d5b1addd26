"""The plane's HTTP service: which path does what, and the steps before governance.

1. Steps 1 to 3 happen here: authenticate, give the request id, parse. Their errors are the model API's own, in the
   body alone; nothing is governed or charged.
2. A governed request runs in a task of its own; its wire says when the caller leaves.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed, ModelApi
from terraflow.core.types import RequestId
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.faults import place_of
from terraflow.gateway.http import reads
from terraflow.gateway.http.chat import answer_chat
from terraflow.gateway.http.head import Head, invalid_request, parse_declared, parse_head
from terraflow.gateway.http.replies import ungoverned
from terraflow.gateway.http.wire import BodyMalformed, BodyTooLarge, BodyTooSlow, Disconnected, Reply, Wire
from terraflow.gateway.mouths import openai_chat
from terraflow.gateway.plane import Plane
from terraflow.gateway.stages.authenticate import authenticate
from terraflow.ports.store import KeyHolder, StoreUnavailable

log = logging.getLogger("terraflow.http")


class ServiceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the edge."""

    body_bytes_max: int
    body_timeout_s: float
    deadline_ms_max: int


class Arrived(msgspec.Struct, frozen=True):
    """An authenticated request before its body is read. `argument` is the id behind a route's path."""

    head: Head
    caller: KeyHolder
    request_id: RequestId
    argument: str
    wire: Wire


Handler = Callable[["Service", Arrived], Awaitable[Reply | None]]
"""Answers a request; None when it has sent its answer itself."""


class Service:
    """What one plane does with a request."""

    def __init__(
        self,
        plane: Plane,
        limits: ServiceLimits,
        evidence: reads.EvidenceReader,
        trusted: Callable[[str], bool],
    ) -> None:
        self.plane = plane
        self.limits = limits
        self.evidence = evidence
        self.draining = False
        self._trusted = trusted

    async def handle(self, wire: Wire) -> None:
        """Answer one request."""
        try:
            reply = await self._answer(wire)
        except Disconnected:
            return
        except StoreUnavailable:
            reply = ungoverned(Refuse(reason=Governed.EVIDENCE_UNAVAILABLE), None)
        except Exception as fault:
            # Before governance, or behind a governed answer whose record is closed: the text stays out of the log.
            log.error("a request failed: %s", place_of(fault))
            reply = ungoverned(Refuse(reason=Governed.INTERNAL_ERROR), None)
        if reply is not None:
            wire.reply(reply)

    async def _answer(self, wire: Wire) -> Reply | None:
        if wire.client is not None and not self._trusted(wire.client):
            return ungoverned(invalid_request("connection", "must come through a trusted proxy"), None)
        head = parse_head(wire.headers, wire.raw_path)
        if isinstance(head, Refuse):
            return ungoverned(head, None)
        path = wire.raw_path.decode("ascii")
        if path == "/healthz" or path == "/readyz":
            return _health(path == "/healthz" or self._ready())
        if not path.startswith("/v1/"):
            return ungoverned(Refuse(reason=ModelApi.NOT_FOUND), None)
        caller = await authenticate(self.plane.store, head.api_key)
        if isinstance(caller, Refuse):
            return ungoverned(caller, None)
        request_id = self.plane.ids.request_id()
        name, argument = _split(path)
        handler = ROUTES.get((wire.method, name))
        if handler is None or (argument == "") is (name in _WITH_ARGUMENT):
            return ungoverned(Refuse(reason=ModelApi.NOT_FOUND), request_id)
        return await handler(self, Arrived(head, caller, request_id, argument, wire))

    def _ready(self) -> bool:
        return not self.draining and type(self.plane.bundles.active()) is Bundle


async def _chat(service: Service, arrived: Arrived) -> Reply | None:
    clock = service.plane.clock
    started, received_at = clock.monotonic(), clock.now()
    declared = parse_declared(arrived.head)
    if isinstance(declared, Refuse):
        return ungoverned(declared, arrived.request_id)
    limits = service.limits
    try:
        raw = await arrived.wire.read_body(limits.body_bytes_max, limits.body_timeout_s)
    except BodyTooLarge:
        too_large = invalid_request("body", f"must be at most {limits.body_bytes_max} bytes")
        return ungoverned(too_large, arrived.request_id)
    except BodyTooSlow:
        return ungoverned(invalid_request("body", "must arrive in time"), arrived.request_id)
    except BodyMalformed:
        return ungoverned(invalid_request("body", "must be framed as HTTP/1.1 says"), arrived.request_id)
    request = openai_chat.parse(raw)
    if isinstance(request, Refuse):
        return ungoverned(request, arrived.request_id)
    deadline_ms = min(declared.deadline_ms or limits.deadline_ms_max, limits.deadline_ms_max)
    x = Exchange(
        request_id=arrived.request_id,
        mouth=openai_chat.NAME,
        caller=arrived.caller,
        declared=declared,
        request=request,
        body_digest=hashlib.sha256(raw).hexdigest(),
        received_at=received_at,
        started=started,
        deadline=started + deadline_ms / 1000,
    )
    arrived.wire.on_leave(partial(_left, x))
    return await answer_chat(service.plane, x, arrived.wire)


def _left(x: Exchange) -> None:
    # A keyed request that is not streamed runs on, so that the retry finds its answer.
    if not x.keyed or x.request.stream:
        x.presence.leave()


async def _models(service: Service, arrived: Arrived) -> Reply | None:
    return reads.models(service.plane, arrived.caller, arrived.request_id)


async def _evidence(service: Service, arrived: Arrived) -> Reply | None:
    plane, reader = service.plane, service.evidence
    return await reads.evidence(plane, reader, arrived.caller, arrived.request_id, arrived.argument)


# fmt: off
ROUTES: dict[tuple[str, str], Handler] = {
    ("POST", "/v1/chat/completions"): _chat,
    ("GET",  "/v1/models"):           _models,
    ("GET",  "/v1/evidence"):         _evidence,
}
# fmt: on
_WITH_ARGUMENT = frozenset(("/v1/evidence",))


def _split(path: str) -> tuple[str, str]:
    """A path's route and the id behind it: `/v1/evidence/req_1` is `("/v1/evidence", "req_1")`."""
    name, _, argument = path.rpartition("/")
    return (name, argument) if name in _WITH_ARGUMENT and argument else (path, "")


def _health(well: bool) -> Reply:
    return Reply(200, [], b'{"status":"ok"}') if well else Reply(503, [], b'{"status":"unready"}')
