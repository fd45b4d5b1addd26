"""A governed request as HTTP, in its mouth's shape: a whole answer, a flowing stream, or a refusal."""

from __future__ import annotations

import logging

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.gateway.faults import place_of
from terraflow.gateway.flow import Flow
from terraflow.gateway.http.replies import flowing_headers, governed_headers, governed_refusal
from terraflow.gateway.http.wire import Headers, Reply, Stalled, Wire
from terraflow.gateway.mouths.mouth import Mouth, StreamWriter
from terraflow.gateway.pipeline import end_flow, govern
from terraflow.gateway.plane import Plane
from terraflow.gateway.running import INTERRUPTED, CallerLeft, Interrupted
from terraflow.gateway.stages.settle_flow import flow_failed
from terraflow.ports.upstream import ProviderFailure

log = logging.getLogger("terraflow.http")

_EVENT_STREAM = b"text/event-stream; charset=utf-8"
_NO_STORE: Headers = [(b"cache-control", b"no-store")]


async def answer_governed(plane: Plane, mouth: Mouth, x: Exchange, wire: Wire) -> Reply | None:
    """Govern the request; the reply, or None when a stream was sent."""
    closed = await govern(plane, x)
    if closed is None:
        await _send_flow(plane, mouth, x, wire)
        return None
    if closed.answer is None:
        return governed_refusal(mouth, closed)
    if x.request.stream:
        return _collected(mouth, x, closed)
    return Reply(closed.status, governed_headers(mouth, closed), mouth.render(closed, _created(x)))


def _created(x: Exchange) -> int:
    return x.received_at // 1_000_000


def _collected(mouth: Mouth, x: Exchange, closed: Closed) -> Reply:
    """An answer that had to be whole before it could go, sent as the stream that was asked for."""
    assert closed.answer is not None
    writer = mouth.writer(x.request_id, closed.capability or "", _created(x), x.request)
    events = [writer.event(chunk) for chunk in mouth.collected(closed.answer)]
    body = b"".join(events) + writer.ending(closed.answer.usage)
    return Reply(closed.status, [*_NO_STORE, *governed_headers(mouth, closed)], body, _EVENT_STREAM)


async def _send_flow(plane: Plane, mouth: Mouth, x: Exchange, wire: Wire) -> None:
    """Pass a stream through, chunk by chunk, and close the request when it has ended."""
    assert x.flow is not None
    writer = mouth.writer(x.request_id, x.flow.capability, _created(x), x.request)
    headers = [
        (b"content-type", _EVENT_STREAM),
        *_NO_STORE,
        *flowing_headers(mouth, x.request_id, x.flow.capability),
    ]
    ending = await _pass_through(plane, x, x.flow, writer, headers, wire)
    await x.flow.aclose()
    closed = await end_flow(plane, x, ending)
    if ending is INTERRUPTED[CallerLeft]:
        return
    whole = closed.status < 400
    last = writer.ending(x.usage) if whole else mouth.error_event(mouth.governed_error(closed))
    wire.end_stream(last)


async def _pass_through(
    plane: Plane, x: Exchange, flow: Flow, writer: StreamWriter, headers: Headers, wire: Wire
) -> Refuse | None:
    try:
        with x.presence:
            wire.start_stream(200, headers, x.deadline - plane.clock.monotonic())
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
    return None
