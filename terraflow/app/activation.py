"""Putting a bundle in force in a data folder, beside a running plane or without one.

1. What is activated was verified with the keys that the folder's plane trusts, and every address in it was looked
   up: a plane that would refuse it is never given it.
2. A sequence number is used once, and only upwards; whatever is refused leaves the active bundle as it is.
"""

from __future__ import annotations

import socket
from pathlib import Path

from terraflow.app.opening import bundle_keys
from terraflow.app.runtime import SystemClock
from terraflow.app.settings import Settings
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Boundary
from terraflow.contracts.decode import BundleRejected
from terraflow.contracts.references import InsideBoundary
from terraflow.contracts.verify import verify_bundle
from terraflow.core.outcome import Problem
from terraflow.providers.endpoint import Place, Standing, decide_standing, parse_networks, parse_place
from terraflow.storage.sqlite.tools import open_tools


def activate(settings: Settings, envelope: bytes) -> Bundle:
    """Verify the envelope and make it the active bundle. Raises BundleRejected, KeyUnusable, DatabaseMissing,
    DatabaseUnusable or StoreUnavailable."""
    clock = SystemClock()
    keys = bundle_keys(settings)
    if not keys:
        wanted = Path(settings.data_dir) / "keys" / "bundle.pub.pem"
        rule = f"this plane trusts no key yet: put the signer's public key at {wanted}, or name it in bundle_keys"
        raise BundleRejected((Problem("signature", rule),))
    bundle = verify_bundle(envelope, keys, clock.now(), inside_boundary=_inside(settings))
    problems = [
        Problem(f"capabilities[{capability.id}].{field}", trouble)
        for capability in bundle.capabilities.values()
        for field, endpoint in capability.endpoints
        if (trouble := _unusable(endpoint)) is not None
    ]
    if problems:
        raise BundleRejected(tuple(problems))
    with open_tools(Path(settings.data_dir)) as tools:
        if tools.activate_bundle(envelope, bundle.sequence, clock.now()):
            return bundle
        rule = f"is {bundle.sequence}, and the active bundle's is {tools.active_sequence()}: raise it and sign again"
    raise BundleRejected((Problem("sequence", rule),))


def _unusable(endpoint: str) -> str | None:
    try:
        parse_place(endpoint)
    except ValueError as error:
        return str(error)
    return None


def _inside(settings: Settings) -> InsideBoundary:
    """Whether a private capability's host lies in the private networks. One that does not resolve here counts as
    inside, as it does for the plane: calls to it fail without a connection."""
    networks = parse_networks(settings.private_networks)

    def inside(host: str) -> bool:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return True
        addresses = [str(entry[4][0]) for entry in found]
        standing = decide_standing(
            Place(host, host, 443, secure=True, literal=False), addresses, Boundary.PRIVATE, networks
        )
        return standing not in (Standing.OUTSIDE, Standing.FORBIDDEN)

    return inside
