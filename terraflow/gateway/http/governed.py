"""A governed request as HTTP, in its mouth's shape: a whole answer, a flowing stream, or a refusal.

1. Nothing of a stream is sent before its first chunk, so that until then a refusal is a plain response.
2. Where that takes longer than a heartbeat, the first one begins the stream: its head knows neither a capability nor
   an outcome, and a refusal is an error event.
"""

from __future__ import annotations

import logging
from functools import partial

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import MICRO
from terraflow.gateway.declaring import combined
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.gateway.faults import place_of
from terraflow.gateway.flow import Flow
from terraflow.gateway.http.arrived import Arrived, Edge, read_declared
from terraflow.gateway.http.replies import flowing_headers, governed_headers, governed_refusal
from terraflow.gateway.http.wire import Headers, Reply, Stalled, Wire
from terraflow.gateway.mouths.errors import governed
from terraflow.gateway.mouths.mouth import Declaring, Mouth, StreamWriter
from terraflow.gateway.pipeline import end_flow, govern
from terraflow.gateway.plane import Plane
from terraflow.gateway.running import INTERRUPTED, CallerLeft, Interrupted
from terraflow.gateway.stages.settle_flow import flow_failed
from terraflow.ports.upstream import ProviderFailure

log = logging.getLogger("terraflow.http")

_EVENT_STREAM = b"text/event-stream; charset=utf-8"
_NO_STORE: Headers = [(b"cache-control", b"no-store")]


async def answer(edge: Edge, arrived: Arrived) -> Reply | Refuse | None:
    """Read the request in its mouth's shape, and govern it."""
    plane, mouth = edge.plane, arrived.mouth
    started, received_at = plane.clock.monotonic(), plane.clock.now()
    read = await read_declared(edge, arrived)
    if isinstance(read, Refuse):
        return read
    declared, raw = read
    request = await plane.turns.parsed(partial(mouth.parse, raw, plane.limits.body_values_max), len(raw))
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
        deadline_ms_max=plane.limits.deadline_ms_max,
    )
    arrived.wire.on_leave(partial(_left, x))
    return await _answer(plane, mouth, x, arrived.wire)


def _left(x: Exchange) -> None:
    # A keyed request that is not streamed runs on, so that the retry finds its answer.
    # The key counts from its declaration until it turns out to be another request's.
    waits_for_another = x.key_digest is not None and not x.keyed
    if x.declared.idempotency_key is None or waits_for_another or x.request.stream:
        x.presence.leave()


async def _answer(plane: Plane, mouth: Mouth, x: Exchange, wire: Wire) -> Reply | None:
    """Govern the request; the reply, or None when a stream was sent."""
    if x.request.stream:
        return await _answer_streamed(plane, mouth, x, wire)
    closed = await govern(plane, x)
    assert closed is not None
    if closed.answer is None:
        return governed_refusal(mouth, closed)
    return Reply(closed.status, governed_headers(mouth, closed), mouth.render(closed, _created(x)))


class _Stream:
    """A streamed answer on its wire: begun by its first chunk, or by a heartbeat."""

    __slots__ = ("_clock", "begun", "mouth", "pulse", "wire", "x")

    def __init__(self, plane: Plane, mouth: Mouth, x: Exchange, wire: Wire) -> None:
        self.mouth = mouth
        self.x = x
        self.wire = wire
        self.begun = False
        self.pulse = plane.heartbeats.pulse(self._beat, self._sent)
        self._clock = plane.clock

    def begin(self, capability: str | None) -> None:
        """Send the head, unless it is sent."""
        if self.begun:
            return
        self.begun = True
        headers = [
            (b"content-type", _EVENT_STREAM),
            *_NO_STORE,
            *flowing_headers(self.mouth, self.x.request_id, capability),
        ]
        self.wire.start_stream(200, headers, self.x.deadline - self._clock.monotonic())

    def _sent(self) -> int:
        flow = self.x.flow
        return 0 if flow is None else flow.sent_bytes

    def _beat(self) -> None:
        self.begin(None)
        self.wire.send_if_free(self.mouth.heartbeat)


async def _answer_streamed(plane: Plane, mouth: Mouth, x: Exchange, wire: Wire) -> Reply | None:
    stream = _Stream(plane, mouth, x, wire)
    with stream.pulse:
        closed = await govern(plane, x)
        if closed is None:
            await _send_flow(plane, stream)
            return None
    if not stream.begun:
        return governed_refusal(mouth, closed) if closed.answer is None else _collected(mouth, x, closed)
    if closed.answer is None:
        wire.end_stream(mouth.error_event(mouth.error(governed(closed))))
    else:
        wire.end_stream(_collected(mouth, x, closed).body)
    return None


def _created(x: Exchange) -> int:
    return x.received_at // MICRO


def _collected(mouth: Mouth, x: Exchange, closed: Closed) -> Reply:
    """An answer that had to be whole before it could go, sent as the stream that was asked for."""
    assert closed.answer is not None
    writer = mouth.writer(x.request_id, closed.capability or "", _created(x), x.request)
    events = [writer.event(chunk) for chunk in mouth.collected(closed.answer)]
    body = b"".join(events) + writer.ending(closed.answer.usage)
    return Reply(closed.status, [*_NO_STORE, *governed_headers(mouth, closed)], body, _EVENT_STREAM)


async def _send_flow(plane: Plane, stream: _Stream) -> None:
    """Pass a stream through, chunk by chunk, and close the request when it has ended."""
    x, mouth = stream.x, stream.mouth
    assert x.flow is not None
    passed = await _pass_through(plane, stream, x.flow)
    broken = passed if isinstance(passed, Refuse) else None
    closed = await end_flow(plane, x, broken)
    if broken is INTERRUPTED[CallerLeft]:
        return
    if isinstance(passed, Refuse) or closed.status >= 400:
        stream.wire.end_stream(mouth.error_event(mouth.error(governed(closed))))
    else:
        stream.wire.end_stream(passed.ending(x.usage))


async def _pass_through(plane: Plane, stream: _Stream, flow: Flow) -> StreamWriter | Refuse:
    """Who wrote the events, once all of them are sent; else why the stream was broken off. Never raises."""
    x, wire = stream.x, stream.wire
    try:
        writer = stream.mouth.writer(x.request_id, flow.capability, _created(x), x.request)
        with x.presence:
            stream.begin(flow.capability)
            async for chunk in flow:
                event = writer.event(chunk)
                if event:
                    flow.sent(event)
                    await wire.send_event(event)
    except Interrupted as interrupted:
        return INTERRUPTED[type(interrupted)]
    except Stalled:
        return Refuse(reason=Governed.DEADLINE_EXPIRED, detail="streaming")
    except ProviderFailure as failed:
        return flow_failed(failed, x.deadline - plane.clock.monotonic())
    except Exception as fault:
        log.error("a stream failed: %s", place_of(fault))
        return Refuse(reason=Governed.INTERNAL_ERROR)
    return writer
