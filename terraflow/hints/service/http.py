"""An HTTP listener beside gRPC: a table of paths and methods, bounded against whoever reaches it.

1. It is plain HTTP; whoever opens it has asked whether that may be at its address (the settings do).
2. With a token, nothing is answered without it, whether the path exists or not; it is compared in constant time.
3. One request a connection. Its head and its body have ten seconds each, its body a size, the listener a number of
   connections.
4. A fault of ours is logged and answered 500 without details.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger("terraflow.hints.http")

HEAD_S = 10.0
BODY_S = 10.0
STOP_S = 5.0
CONNECTIONS_MAX = 256

T = TypeVar("T")
Respond = Callable[[web.BaseRequest], Awaitable[web.Response]]
Routes = Mapping[str, Mapping[str, Respond]]
"""What answers, by path and by method. HEAD is answered as GET."""


class Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, said: str, **details: Any) -> None:
        super().__init__(said)
        self.status = status
        self.details = details


def json_response(value: Any, status: int = 200) -> web.Response:
    """A value as JSON."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


async def read_body(request: web.BaseRequest, bytes_max: int) -> bytes:
    """A request's whole body. Raises Refused when it is larger, slow or broken."""
    read = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_chunked(1 << 16):
                read += chunk
                if len(read) > bytes_max:
                    raise Refused(413, f"the body is larger than {bytes_max} bytes")
    except TimeoutError:
        raise Refused(408, "the body did not come in time") from None
    except web.RequestPayloadError:
        raise Refused(400, "the body is broken") from None
    return bytes(read)


async def read_json(request: web.BaseRequest, bytes_max: int, type: type[T], what: str) -> T:  # noqa: A002
    """A request's body as JSON of a type; `what` it should have been, for who is refused. Raises Refused."""
    raw = await read_body(request, bytes_max)
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"no {what}: {error}") from None


class _Server(web.Server):
    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()


class Listener:
    """One address with its routes."""

    def __init__(self, routes: Routes, *, host: str, port: int, token: bytes | None = None) -> None:
        self._routes = routes
        self._address = host, port
        self._token = None if token is None else sha256(token).digest()
        self._runner: web.ServerRunner | None = None

    async def start(self) -> int:
        """Listen, and return the port. Raises OSError."""
        server = _Server(self._answer, keepalive_timeout=HEAD_S, access_log=None, max_headers=64, lingering_time=1.0)
        runner = web.ServerRunner(server, shutdown_timeout=STOP_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        port: int = runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        """Take no more, and give open requests a while. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        try:
            response = await self._routed(request)
        except Refused as refused:
            response = json_response({"error": str(refused), **refused.details}, refused.status)
        except ConnectionResetError:
            raise
        except Exception as error:
            log.error("%s %s failed: %s", request.method, request.path[:64], type(error).__name__, exc_info=error)
            response = json_response({"error": "internal error"}, 500)
        response.force_close()
        return response

    async def _routed(self, request: web.BaseRequest) -> web.Response:
        if self._token is not None and not self._knows(request):
            shown = request.headers.get("Authorization", "")
            why = "this bearer token is not this listener's" if shown else "a bearer token is needed"
            where = "internal_token_file, or internal.token of the data folder"
            response = json_response({"error": f"{why}: {where}, has it"}, 401)
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        methods = self._routes.get(request.path)
        if methods is None:
            raise Refused(404, "nothing is here")
        respond = methods.get("GET" if request.method == "HEAD" else request.method)
        if respond is None:
            response = json_response({"error": "the method is not for this path"}, 405)
            response.headers["Allow"] = ", ".join(sorted(methods))
            return response
        return await respond(request)

    def _knows(self, request: web.BaseRequest) -> bool:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        digest = sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(digest, self._token or b"") and kind.lower() == "bearer"
