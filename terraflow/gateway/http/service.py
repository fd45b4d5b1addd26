"""The plane's HTTP service: which path does what, and the steps before governance.

1. Steps 1 to 3 happen here: authenticate, give the request id, parse. Their errors are the model API's own, in the
   body alone; nothing is governed or charged.
2. A governed request runs in the connection's task; a second, small task watches whether its caller leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from terraflow.contracts.bundle import Bundle
from terraflow.core.outcome import Problem, Refuse
from terraflow.core.reasons import ModelApi
from terraflow.core.types import RequestId
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.http import reads
from terraflow.gateway.http.asgi import (
    BodyTooLarge,
    BodyTooSlow,
    Disconnected,
    Receive,
    Reply,
    Scope,
    Send,
    read_body,
    send_reply,
)
from terraflow.gateway.http.chat import answer_chat
from terraflow.gateway.http.head import Head, parse_declared, parse_head
from terraflow.gateway.http.replies import ungoverned
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


Handler = Callable[["Service", Head, KeyHolder, RequestId, str, Receive, Send], Awaitable[None]]


class Service:
    """The ASGI application of one plane."""

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            await self._answer(scope, receive, send)
        except Disconnected:
            return
        except StoreUnavailable:
            await send_reply(send, _plain(503, b'{"status":"unavailable"}'))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        client = scope.get("client")
        if client is not None and not self._trusted(client[0]):
            await send_reply(send, ungoverned(_not_through_proxy(), None))
            return
        head = parse_head(scope["headers"], scope["raw_path"])
        if isinstance(head, Refuse):
            await send_reply(send, ungoverned(head, None))
            return
        if path == "/healthz" or path == "/readyz":
            healthy = path == "/healthz" or self._ready()
            body = b'{"status":"ok"}' if healthy else b'{"status":"unready"}'
            await send_reply(send, _plain(200 if healthy else 503, body))
            return
        if not path.startswith("/v1/"):
            await send_reply(send, ungoverned(Refuse(reason=ModelApi.NOT_FOUND), None))
            return
        caller = await authenticate(self.plane.store, head.api_key)
        if isinstance(caller, Refuse):
            await send_reply(send, ungoverned(caller, None))
            return
        request_id = self.plane.ids.request_id()
        name, argument = _split(path)
        handler = ROUTES.get((method, name))
        if handler is None or (argument == "") is (name in _WITH_ARGUMENT):
            await send_reply(send, ungoverned(Refuse(reason=ModelApi.NOT_FOUND), request_id))
            return
        await handler(self, head, caller, request_id, argument, receive, send)

    def _ready(self) -> bool:
        return not self.draining and type(self.plane.bundles.active()) is Bundle


async def _chat(
    service: Service, head: Head, caller: KeyHolder, request_id: RequestId, _: str, receive: Receive, send: Send
) -> None:
    plane, limits = service.plane, service.limits
    started, received_at = plane.clock.monotonic(), plane.clock.now()
    declared = parse_declared(head)
    if isinstance(declared, Refuse):
        await send_reply(send, ungoverned(declared, request_id))
        return
    try:
        raw = await read_body(receive, limits.body_bytes_max, limits.body_timeout_s)
    except BodyTooLarge:
        await send_reply(send, ungoverned(_bad_body(f"must be at most {limits.body_bytes_max} bytes"), request_id))
        return
    except BodyTooSlow:
        await send_reply(send, ungoverned(_bad_body("must arrive in time"), request_id))
        return
    request = openai_chat.parse(raw)
    if isinstance(request, Refuse):
        await send_reply(send, ungoverned(request, request_id))
        return
    x = Exchange(
        request_id=request_id,
        mouth=openai_chat.NAME,
        caller=caller,
        declared=declared,
        request=request,
        body_digest=hashlib.sha256(raw).hexdigest(),
        received_at=received_at,
        started=started,
        deadline=started + min(declared.deadline_ms or limits.deadline_ms_max, limits.deadline_ms_max) / 1000,
    )
    watcher = asyncio.get_running_loop().create_task(_watch(receive, x))
    try:
        await answer_chat(plane, x, send)
    finally:
        watcher.cancel()


async def _watch(receive: Receive, x: Exchange) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    # A keyed request that is not streamed runs on, so that the retry finds its answer.
    if not (x.keyed and not x.request.stream):
        x.presence.leave()


async def _models(
    service: Service, head: Head, caller: KeyHolder, request_id: RequestId, _: str, receive: Receive, send: Send
) -> None:
    await send_reply(send, reads.models(service.plane, caller, request_id))


async def _evidence(
    service: Service, head: Head, caller: KeyHolder, request_id: RequestId, argument: str, receive: Receive, send: Send
) -> None:
    await send_reply(send, await reads.evidence(service.plane, service.evidence, caller, request_id, argument))


# fmt: off
ROUTES: dict[tuple[str, str], Handler] = {
    ("POST", "/v1/chat/completions"): _chat,
    ("GET",  "/v1/models"):           _models,
    ("GET",  "/v1/evidence"):         _evidence,
}
_WITH_ARGUMENT = frozenset(("/v1/evidence",))
# fmt: on


def _split(path: str) -> tuple[str, str]:
    """A path's route and the id behind it: `/v1/evidence/req_1` is `("/v1/evidence", "req_1")`."""
    name, _, argument = path.rpartition("/")
    return (name, argument) if name in _WITH_ARGUMENT and argument else (path, "")


def _bad_body(rule: str) -> Refuse:
    return Refuse(reason=ModelApi.INVALID_REQUEST, problems=(Problem(field="body", rule=rule),))


def _not_through_proxy() -> Refuse:
    problem = Problem(field="connection", rule="must come through a trusted proxy")
    return Refuse(reason=ModelApi.INVALID_REQUEST, problems=(problem,))


def _plain(status: int, body: bytes) -> Reply:
    return Reply(status, [], body)
