"""The plane's outgoing connections: names resolved and checked ahead of time, one pool a boundary.

1. A name is resolved when its endpoint is opened and every `refresh_s` after that, never while a call waits for
   it. A connection is made to an address that was checked, or not at all: the pool's resolver knows only those.
2. When a name stops resolving, its last checked addresses stay; when it resolves to something that the check
   refuses, the endpoint is shut until a later look permits it again.
3. No redirects, no cookies, no proxy of the environment, no compressed answers; one pool each for private and
   external endpoints, so that no connection of one boundary serves the other.
4. Connections are kept alive for less time than the servers behind them keep theirs, so that a call seldom meets
   one that is being closed; TCP_NODELAY is set by aiohttp, keep-alive probes and an end to unsent data are set
   here.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from terraflow.contracts.capability import Boundary
from terraflow.providers.endpoint import Network, Place, Standing, decide_standing

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Addresses of a host; raises OSError when it has none."""

REFRESH_S = 30.0
"""How old a checked address may be: the shortest time to live in wide use is 30 to 60 s."""
RESOLVE_S_MAX = 1.5
"""A plane is up within two seconds, whatever its name servers do."""
RESOLVE_AGAIN_S = 2.0
"""How soon a name that has never resolved is looked up again."""
CONNECTIONS_MAX = 1024
"""In all, per boundary; admission bounds what runs at once well below it."""
IDLE_S: Final = {Boundary.PRIVATE: 4.0, Boundary.EXTERNAL: 30.0}
"""uvicorn (vLLM, SGLang) and llama.cpp close idle connections after 5 s, the vendors' fronts after a minute and
more."""
READ_BYTES = 64 * 1024
HEADER_BYTES_MAX = 8 * 1024
HEADERS_MAX = 64
_SOCKET_OPTIONS = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 30_000),
)
"""A peer that answers no probe for a minute, or takes no data for 30 s, is gone."""


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Addresses as the system's resolver orders them (RFC 6724)."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Endpoint:
    """One checked place. `permitted` is what a call looks at, `standing` is what the planner reads."""

    __slots__ = ("_users", "boundary", "lingering", "permitted", "place", "session", "standing")

    def __init__(
        self, place: Place, boundary: Boundary, session: aiohttp.ClientSession, lingering: set[aiohttp.ClientResponse]
    ) -> None:
        self.place = place
        self.boundary = boundary
        self.session = session
        self.lingering = lingering
        """Responses that were read as far as they matter and have not ended; all endpoints share the set."""
        self.standing = Standing.UNRESOLVED
        self.permitted = False
        self._users = 0


class _Checked(AbstractResolver):
    """A pool's resolver: the checked addresses, and nothing else."""

    def __init__(self) -> None:
        self.addresses: dict[tuple[str, int], tuple[str, ...]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.addresses[host, port]
        ]

    async def close(self) -> None:
        self.addresses.clear()


class Outbound:
    """Every outgoing connection of the plane. Made and closed inside the running loop."""

    def __init__(
        self,
        private_networks: Sequence[Network],
        *,
        resolve: Resolve = system_resolve,
        refresh_s: float = REFRESH_S,
        connections_max: int = CONNECTIONS_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._private_networks = tuple(private_networks)
        self._resolve = resolve
        self._refresh_s = refresh_s
        self._pools = {boundary: _Checked() for boundary in Boundary}
        self._sessions = {
            boundary: _session(self._pools[boundary], connections_max, IDLE_S[boundary], tls) for boundary in Boundary
        }
        self._endpoints: dict[tuple[Boundary, Place], Endpoint] = {}
        self._lingering: set[aiohttp.ClientResponse] = set()
        self._refreshing: asyncio.Task[None] | None = None

    async def open(self, place: Place, boundary: Boundary) -> Endpoint:
        """The endpoint of a place, resolved and checked; one that is not permitted is returned shut. Call
        `release` for each."""
        endpoint = self._endpoints.get((boundary, place))
        if endpoint is None:
            endpoint = self._endpoints[boundary, place] = Endpoint(
                place, boundary, self._sessions[boundary], self._lingering
            )
        # Counted before the look, during which another user may come and go.
        endpoint._users += 1
        if endpoint.standing is Standing.UNRESOLVED:
            try:
                await self._look(endpoint)
            except BaseException:
                self.release(endpoint)
                raise
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
        return endpoint

    def release(self, endpoint: Endpoint) -> None:
        """One user less; an endpoint without users is no longer looked at."""
        endpoint._users -= 1
        if endpoint._users == 0:
            self._endpoints.pop((endpoint.boundary, endpoint.place), None)

    async def refresh(self) -> None:
        """Look at every endpoint again."""
        await asyncio.gather(*map(self._look, tuple(self._endpoints.values())))

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
            self._refreshing = None
        for response in tuple(self._lingering):
            abort(response)
        self._lingering.clear()
        for session in self._sessions.values():
            await session.close()

    async def _refresh(self) -> None:
        while True:
            unresolved = any(e.standing is Standing.UNRESOLVED for e in self._endpoints.values())
            await asyncio.sleep(min(RESOLVE_AGAIN_S, self._refresh_s) if unresolved else self._refresh_s)
            await self.refresh()

    async def _look(self, endpoint: Endpoint) -> None:
        place, known = endpoint.place, self._pools[endpoint.boundary].addresses
        try:
            async with asyncio.timeout(RESOLVE_S_MAX):
                addresses = (place.host,) if place.literal else tuple(await self._resolve(place.host, place.port))
        except (OSError, UnicodeError):
            return
        standing = decide_standing(place, addresses, endpoint.boundary, self._private_networks)
        if standing is Standing.UNRESOLVED:
            return
        if standing is Standing.PERMITTED:
            known[place.host, place.port] = addresses
        endpoint.standing = standing
        endpoint.permitted = standing is Standing.PERMITTED


def abort(response: aiohttp.ClientResponse) -> None:
    """Drop a response's connection without waiting for anybody, a TLS peer's farewell included."""
    connection = response.connection
    if connection is not None and connection.protocol is not None:
        connection.protocol.abort()
    response.close()


def _session(
    resolver: _Checked, connections_max: int, idle_s: float, tls: ssl.SSLContext | None
) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        resolver=resolver,
        use_dns_cache=False,
        limit=connections_max,
        keepalive_timeout=idle_s,
        ssl=True if tls is None else tls,
        socket_factory=_socket,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        timeout=aiohttp.ClientTimeout(),
        read_bufsize=READ_BYTES,
        max_line_size=HEADER_BYTES_MAX,
        max_field_size=HEADER_BYTES_MAX,
        max_headers=HEADERS_MAX,
    )


def _socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """A socket for one address, with the options above where the system has them."""
    made = socket.socket(info[0], info[1], info[2])
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _SOCKET_OPTIONS:
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError:
        made.close()
        raise
    return made
