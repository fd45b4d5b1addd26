"""Where a capability's calls may go: a pure check of an endpoint's addresses.

1. An endpoint is a base URL of scheme http or https: no user, no query, no fragment. Only an operator's signed
   definition names one; a request never can.
2. An address counts as the IPv4 address that it carries: IPv4-mapped (RFC 4291), NAT64 (RFC 6052), 6to4 (RFC
   3056). Teredo, and NAT64 prefixes for local use, hide an address that cannot be judged: forbidden.
3. One setting, `private_networks`, says which networks are the organisation's own. A `private` capability must
   resolve inside them, with every address. An `external` one must be globally routable, with every address; inside
   it may be only when the endpoint itself is an address or `localhost` (a proxy, a mock), so that no name server
   can point a foreign name at something of ours.
4. Nobody may reach link-local, multicast, unspecified or reserved addresses, or a cloud's metadata service, not
   even inside a private network.
5. Outside the private networks only https is spoken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from yarl import URL

from terraflow.contracts.capability import Boundary

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Standing(StrEnum):
    """What the check says of an endpoint."""

    PERMITTED = "permitted"
    OUTSIDE = "outside"
    """A private capability whose address is not inside the private networks."""
    FORBIDDEN = "forbidden"
    """An address that this boundary may not reach, or plain http to the outside."""
    UNRESOLVED = "unresolved"
    """The name has never resolved."""


class Place(NamedTuple):
    """An endpoint's parts; `base` ends without a slash. `literal`: the host is an address, and is never looked
    up."""

    base: str
    host: str
    port: int
    secure: bool
    literal: bool


_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?")
_NUMERIC = re.compile(r"(?:0x[0-9a-f]+|[0-9]+)(?:\.(?:0x[0-9a-f]+|[0-9]+))*")
_NAT64 = ip_network("64:ff9b::/96")
_SIX_TO_FOUR = ip_network("2002::/16")
_HIDING = (ip_network("2001::/32"), ip_network("64:ff9b:1::/48"))
_METADATA = frozenset(
    ip_address(text)
    # AWS, Google, Azure and others; AWS over IPv6; Alibaba; Azure's host; Oracle.
    for text in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks in CIDR form. Raises ValueError for host bits, or for a text that is none."""
    return tuple(ip_network(text) for text in texts)


def parse_place(endpoint: str) -> Place:
    """The parts of an endpoint. Raises ValueError naming the rule, never the text."""
    if not endpoint.isprintable() or " " in endpoint:
        raise ValueError("an endpoint is a URL without spaces")
    try:
        url = URL(endpoint)
    except ValueError:
        raise ValueError("an endpoint is a URL") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("an endpoint is an http or https URL with a host")
    if url.user is not None or url.password is not None or url.raw_query_string or url.raw_fragment:
        raise ValueError("an endpoint has no user, query or fragment")
    host, literal = url.host, ":" in url.host or _NUMERIC.fullmatch(url.host) is not None
    if not literal and _HOST.fullmatch(host) is None:
        raise ValueError("an endpoint's host is a name or an address")
    try:
        address = ip_address(host) if literal else None
    except ValueError:
        raise ValueError("an IPv4 address is written as four decimal numbers") from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise ValueError("an endpoint's address has no zone")
    return Place(str(url).rstrip("/"), host, url.port or 443, url.scheme == "https", literal)


def unwrap(address: Address) -> Address | None:
    """The address that traffic would reach; None when it hides one that cannot be judged."""
    for _ in range(4):
        if isinstance(address, IPv4Address):
            return address
        carried = _carried(address)
        if carried is None:
            return None if any(address in network for network in _HIDING) else address
        address = carried
    return None


def _carried(address: IPv6Address) -> IPv4Address | None:
    packed = address.packed
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(packed[12:])
    if address in _SIX_TO_FOUR:
        return IPv4Address(packed[2:6])
    # IPv4-compatible (::/96, deprecated by RFC 4291): ::1 and :: are addresses of their own.
    if packed[:12] == bytes(12) and int(address) > 0xFFFF:
        return IPv4Address(packed[12:])
    return None


def decide_standing(
    place: Place, addresses: Sequence[str], boundary: Boundary, private_networks: Sequence[Network]
) -> Standing:
    """Whether an endpoint that resolved to `addresses` may be called by a capability of this boundary."""
    if not addresses:
        return Standing.UNRESOLVED
    all_inside, fixed = True, place.literal or place.host == "localhost"
    for text in addresses:
        address = unwrap(ip_address(text.partition("%")[0]))
        if address is None or _never(address):
            return Standing.FORBIDDEN
        inside = any(address in network for network in private_networks if network.version == address.version)
        all_inside = all_inside and inside
        if boundary is Boundary.EXTERNAL and not address.is_global and not (inside and fixed):
            return Standing.FORBIDDEN
    if boundary is Boundary.PRIVATE and not all_inside:
        return Standing.OUTSIDE
    if not all_inside and not place.secure:
        return Standing.FORBIDDEN
    return Standing.PERMITTED


def _never(address: Address) -> bool:
    # ::1 lies in a block that the library calls reserved.
    return (
        address in _METADATA
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (address.is_reserved and not address.is_loopback)
        or (address.version == 4 and int(address) >> 24 == 0)
    )
