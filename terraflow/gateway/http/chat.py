"""A governed chat request as HTTP: a whole answer, a flowing stream, or a refusal."""

from __future__ import annotations

import logging

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.gateway.exchange import Closed, Exchange
from terraflow.gateway.http.asgi import Headers, Reply, Send, send_reply
from terraflow.gateway.http.replies import flowing_headers, governed_headers, governed_refusal
from terraflow.gateway.mouths import openai_chat
from terraflow.gateway.mouths.errors import governed_error
from terraflow.gateway.pipeline import end_flow, govern
from terraflow.gateway.plane import Plane
from terraflow.gateway.running import CallerLeft
from terraflow.gateway.stages.flow import Flow, flow_failed
from terraflow.ports.upstream import ProviderFailure

log = logging.getLogger("terraflow.http")

_EVENT_STREAM: Headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


async def answer_chat(plane: Plane, x: Exchange, send: Send) -> None:
    """Govern the request and send what came of it."""
    closed = await govern(plane, x)
    if closed is None:
        await _send_flow(plane, x, send)
    elif closed.answer is None:
        await send_reply(send, governed_refusal(closed))
    elif x.request.stream:
        await _send_collected(x, closed, send)
    else:
        body = openai_chat.render(closed, _created(x))
        await send_reply(send, Reply(closed.status, governed_headers(closed), body))


def _created(x: Exchange) -> int:
    return x.received_at // 1_000_000


def _writer(x: Exchange, capability: str) -> openai_chat.ChunkWriter:
    return openai_chat.ChunkWriter(x.request_id, capability, _created(x), include_usage=x.request.include_usage)


async def _send_collected(x: Exchange, closed: Closed, send: Send) -> None:
    """An answer that had to be whole before it could go, sent as the stream that was asked for."""
    assert closed.answer is not None
    writer = _writer(x, closed.capability or "")
    await _start(send, closed.status, _EVENT_STREAM + governed_headers(closed))
    events = [writer.event(chunk) for chunk in openai_chat.whole_as_chunks(closed.answer.choices)]
    body = b"".join(events) + writer.ending(closed.answer.usage)
    await send({"type": "http.response.body", "body": body})


async def _send_flow(plane: Plane, x: Exchange, send: Send) -> None:
    """Pass a stream through, chunk by chunk, and close the request when it has ended."""
    assert x.flow is not None
    writer = _writer(x, x.flow.capability)
    ending = await _pass_through(plane, x, x.flow, writer, send)
    await x.flow.aclose()
    closed = await end_flow(plane, x, ending)
    if closed.reason is Governed.CANCELLED:
        return
    whole = closed.status < 400
    last = writer.ending(x.usage) if whole else openai_chat.error_event(governed_error(closed))
    await send({"type": "http.response.body", "body": last})


async def _pass_through(
    plane: Plane, x: Exchange, flow: Flow, writer: openai_chat.ChunkWriter, send: Send
) -> Refuse | None:
    try:
        with x.presence.interruptible():
            await _start(send, 200, _EVENT_STREAM + flowing_headers(x.request_id, flow.capability))
            async for chunk in flow:
                event = writer.event(chunk)
                if event:
                    flow.sent(event)
                    await send({"type": "http.response.body", "body": event, "more_body": True})
    except CallerLeft:
        return Refuse(reason=Governed.CANCELLED, detail="caller_left")
    except ProviderFailure as failed:
        return flow_failed(failed, x.deadline - plane.clock.monotonic())
    except Exception as fault:
        log.error("a stream failed: %s", type(fault).__name__)
        return Refuse(reason=Governed.INTERNAL_ERROR)
    return None


async def _start(send: Send, status: int, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
