"""Ports for those that go and come back."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000


def kept_port() -> int:
    """A port on which nobody listens. While its owner is away it stays free: port 0 would give one that the system may
    give to somebody's outgoing connection meanwhile, on which nobody can listen."""
    first = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    while True:
        port = LOWEST + secrets.randbelow(first - LOWEST)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
