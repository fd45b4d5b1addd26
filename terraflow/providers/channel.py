"""One capability's way to its vendor: a POST that gives a body, or a POST that gives events.

1. Whatever goes wrong is raised as ProviderFailure, outside the `except` that saw it, so that no text of the
   vendor's or the network's hangs on it.
2. A call that does not end well closes its connection at once; only a response that was read to its end gives its
   connection back.
3. A body, a line, an event and a stream are bounded; beyond the bound the answer is MALFORMED.
4. The last event of a stream may lack its blank line, as some engines leave it out behind `[DONE]`: it counts if it is
   whole.
5. A 200 that holds an error is obeyed in its `Retry-After`, too.
6. Whatever goes wrong before the first byte has gone out did not reach the vendor. The head goes out with the body.
7. A compressed answer was not asked for and is MALFORMED. So is a JSON body where events were asked for, unless it is
   an error: some endpoints refuse a stream with a 200.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict
from yarl import URL

from terraflow.ports.upstream import Answer, Failure, ProviderFailure
from terraflow.providers.failures import NETWORK, Row, failure_of, failure_of_break, failure_of_success
from terraflow.providers.outbound import Endpoint, abort
from terraflow.providers.refusal import BODY_BYTES_MAX, parse_refusal, parse_retry_after_s
from terraflow.providers.sse import EventParser, EventTooLarge

ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Beyond the longest answer of 128 000 tokens with log probabilities; of a body, and of a whole stream."""
CONNECT_S_MAX = 5.0
_LINGER_S = 1.0
"""How long a finished stream may take to end its response before its connection is given up."""
_NO_CEILING = 1e9
_END_MARK = b"[DONE]"


Connecting = Callable[[bool], None]
"""See `ports.upstream.Call`."""


class _Body(aiohttp.BytesPayload):
    """What is posted; `begun` once it goes out, of which `connecting` is told."""

    def __init__(self, body: bytes, connecting: Connecting | None) -> None:
        super().__init__(body)
        self.begun = False
        self._connecting = connecting
        if connecting is not None:
            connecting(True)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.begun = True
        if self._connecting is not None:
            self._connecting(False)
        await super().write_with_length(writer, content_length)


class Channel:
    """POST to one URL with one set of headers; the credential lives here alone."""

    __slots__ = ("_endpoint", "_headers", "_table", "_url")

    def __init__(self, endpoint: Endpoint, path: str, headers: Mapping[str, str], table: tuple[Row, ...]) -> None:
        """Raises ValueError, without the value, for a header that HTTP cannot carry."""
        if any(not value.isascii() or not value.isprintable() for value in headers.values()):
            raise ValueError("a credential holds a character that a header cannot carry")
        self._endpoint = endpoint
        self._url = URL(endpoint.place.base + path)
        self._headers = CIMultiDict(headers)
        self._headers.extend(
            {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "terraflow"}
        )
        self._table = table

    async def answer(
        self,
        body: bytes,
        timeout_s: float,
        parse: Callable[[bytes], Answer],
        connecting: Connecting | None = None,
    ) -> Answer:
        """What `parse` makes of a success's body."""
        response = await self._post(body, timeout_s, "application/json", connecting)
        raw = await _whole(response, ANSWER_BYTES_MAX)
        try:
            return parse(raw)
        except ProviderFailure as failed:
            _told_to_wait(failed, response)
            raise

    async def events(self, body: bytes, timeout_s: float, connecting: Connecting | None = None) -> EventStream:
        """The events of a success, its first byte not yet read. The caller closes them."""
        response = await self._post(body, timeout_s, "text/event-stream", connecting)
        if response.content_type == "application/json":
            failed = failure_of_success(self._table, await _whole(response, BODY_BYTES_MAX))
            _told_to_wait(failed, response)
            raise failed
        return EventStream(response, self._endpoint.lingering)

    async def answers(self, path: str, timeout_s: float) -> bool:
        """Whether the endpoint answers a GET of a path at all, with anything but a fault of its own."""
        endpoint = self._endpoint
        if not endpoint.permitted:
            return False
        timeout = aiohttp.ClientTimeout(total=timeout_s, ceil_threshold=_NO_CEILING)
        try:
            async with endpoint.session.get(
                URL(endpoint.place.base + path), headers=self._headers, allow_redirects=False, timeout=timeout
            ) as response:
                return response.status < 500
        except NETWORK:
            return False

    async def _post(
        self, body: bytes, timeout_s: float, accept: str, connecting: Connecting | None
    ) -> aiohttp.ClientResponse:
        endpoint = self._endpoint
        if not endpoint.permitted:
            raise ProviderFailure(Failure.CONNECT, reached=False)
        headers = self._headers.copy()
        headers["Accept"] = accept
        timeout = aiohttp.ClientTimeout(
            total=timeout_s, connect=min(CONNECT_S_MAX, timeout_s), ceil_threshold=_NO_CEILING
        )
        failure: ProviderFailure | None = None
        out = _Body(body, connecting)
        try:
            response = await endpoint.session.post(
                self._url, data=out, headers=headers, allow_redirects=False, timeout=timeout
            )
        except NETWORK as broken:
            failure = failure_of_break(broken)
        if failure is not None:
            failure.reached = failure.reached and out.begun
            raise failure
        if response.status == 200 and response.headers.get("Content-Encoding", "identity") == "identity":
            return response
        raise await self._refused(response)

    async def _refused(self, response: aiohttp.ClientResponse) -> ProviderFailure:
        if response.status == 200:
            abort(response)
            return ProviderFailure(Failure.MALFORMED, reached=True, status=200)
        try:
            body = await _whole(response, BODY_BYTES_MAX)
        except ProviderFailure:
            body = b""
        return failure_of(self._table, parse_refusal(response.status, response.headers, body, time.time()))


class EventStream:
    """The events of one response, in the batches in which they arrive."""

    __slots__ = ("_left", "_lingering", "_parser", "_response", "_whole")

    def __init__(self, response: aiohttp.ClientResponse, lingering: set[aiohttp.ClientResponse]) -> None:
        self._response = response
        self._lingering = lingering
        self._parser = EventParser()
        self._left = ANSWER_BYTES_MAX
        self._whole = False

    async def read(self) -> list[bytes]:
        """At least one event, or none when the response has ended. Raises ProviderFailure."""
        content = self._response.content
        while True:
            received = await _piece(content)
            if not received:
                last = self._parser.rest()
                return [last] if _is_whole(last) else []
            self._left -= len(received)
            if self._left < 0:
                raise ProviderFailure(Failure.MALFORMED, reached=True, status=200)
            try:
                events = self._parser.feed(received)
            except EventTooLarge:
                events = None
            if events is None:
                raise ProviderFailure(Failure.MALFORMED, reached=True, status=200)
            if events:
                return events

    def end(self) -> None:
        """The vendor said that its answer is over: the connection goes back to the pool when the response ends
        too, which it usually has; one that does not end in time is dropped."""
        self._whole = True
        response = self._response
        if response.connection is None:
            return
        self._lingering.add(response)
        given_up = asyncio.get_running_loop().call_later(_LINGER_S, self._give_up)
        response.content.on_eof(given_up.cancel)
        response.content.on_eof(self._given_back)

    def _given_back(self) -> None:
        self._lingering.discard(self._response)

    def _give_up(self) -> None:
        self._lingering.discard(self._response)
        abort(self._response)

    def close(self) -> None:
        """Close the connection at once, unless the answer is over."""
        if not self._whole:
            abort(self._response)


def _told_to_wait(failed: ProviderFailure, response: aiohttp.ClientResponse) -> None:
    """Rule 5, in place."""
    if failed.retry_after_s is None:
        failed.retry_after_s = parse_retry_after_s(response.headers, time.time())


def _is_whole(data: bytes) -> bool:
    """Whether an event's data can have no more behind it."""
    if data == _END_MARK:
        return True
    try:
        msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


async def _whole(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """A response's body; its connection is closed unless that was read to its end. Raises ProviderFailure."""
    whole = False
    try:
        body = await _read(response, bytes_max)
        whole = True
    finally:
        if not whole:
            abort(response)
    return body


async def _read(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """A response's body. Raises ProviderFailure: MALFORMED over the bound."""
    content, size = response.content, 0
    parts: list[bytes] = []
    declared: Any = response.content_length
    while declared is None or declared <= bytes_max:
        piece = await _piece(content)
        if not piece:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        size += len(piece)
        if size > bytes_max:
            break
        parts.append(piece)
    raise ProviderFailure(Failure.MALFORMED, reached=True, status=response.status)


async def _piece(content: aiohttp.StreamReader) -> bytes:
    """What has arrived, waiting for something; empty at the end."""
    try:
        return await content.readany()
    except NETWORK as broken:
        failure = failure_of_break(broken)
    except RuntimeError:
        # The reader's word for a connection that was lost between two reads.
        failure = ProviderFailure(Failure.CUT_OFF, reached=True)
    raise failure
