"""Who is at a connection's other end, and how many connections that one may have.

1. An address is what one caller holds: an IPv4 address, or the /64 of an IPv6 one. One that is IPv4 inside of IPv6 is
   IPv4.
2. At most `connections_max` are open in all, and `address_max` of one address.
3. Whom many callers come through is counted in all alone: the networks of `trusted_proxies`; where there are none,
   this machine itself, beside which a proxy may run.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Sequence

from terraflow.app.loading import is_loopback

_REMEMBERED_MAX = 10_000
"""Addresses of which it is remembered whether they are trusted."""


def plain_address(host: str) -> str:
    """An address as it is compared and counted, without the zone of IPv6 and unwrapped by rule 1."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    return str(address if address.ipv4_mapped is None else address.ipv4_mapped)


def within(networks: Sequence[str]) -> Callable[[str], bool]:
    """Whether a plain address lies in one of the networks."""
    parsed = [ipaddress.ip_network(network) for network in networks]
    known: dict[str, bool] = {}

    def inside(client: str) -> bool:
        found = known.get(client)
        if found is None:
            if len(known) >= _REMEMBERED_MAX:
                known.clear()
            try:
                address = ipaddress.ip_address(client)
            except ValueError:
                return False
            found = known[client] = any(address in network for network in parsed)
        return found

    return inside


def many_come_through(trusted_proxies: Sequence[str]) -> Callable[[str], bool]:
    """Rule 3: whether an address is to be counted in all alone."""
    return within(trusted_proxies) if trusted_proxies else is_loopback


class Place:
    """A connection that is counted. It is given back once; a second time does nothing."""

    __slots__ = ("_key", "_places")

    def __init__(self, places: Places, key: str | None) -> None:
        self._places: Places | None = places
        self._key = key

    def give_back(self) -> None:
        """The connection is closed."""
        places, self._places = self._places, None
        if places is not None:
            places.lost(self._key)


class Places:
    """How many connections are open, in all and by address."""

    def __init__(self, connections_max: int, address_max: int, many: Callable[[str], bool]) -> None:
        self._connections_max = connections_max
        self._address_max = address_max
        self._many = many
        self._by_key: Counter[str] = Counter()
        self.open = 0
        self.refused = 0

    def take(self, address: str) -> Place | None:
        """A place for a connection of a plain address; None when there is none by rule 2."""
        place = self._find(address)
        if place is None:
            self.refused += 1
        else:
            self.open += 1
        return place

    def _find(self, address: str) -> Place | None:
        if self.open >= self._connections_max:
            return None
        key = None if self._many(address) else _key_of(address)
        if key is not None:
            if self._by_key[key] >= self._address_max:
                return None
            self._by_key[key] += 1
        return Place(self, key)

    def lost(self, key: str | None) -> None:
        """One of them is closed."""
        self.open -= 1
        if key is not None:
            self._by_key[key] -= 1
            if not self._by_key[key]:
                del self._by_key[key]


def _key_of(address: str) -> str:
    if ":" not in address:
        return address
    return str(ipaddress.IPv6Network((address, 64), strict=False))
