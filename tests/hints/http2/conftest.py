"""Tests with real sockets run on both event loops: asyncio's own, and uvloop, which the service uses."""

from __future__ import annotations

import asyncio

import uvloop

REAL = ("test_clients", "test_server", "test_tls")


def pytest_asyncio_loop_factories(config, item):
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return both if item.module.__name__.rpartition(".")[2] in REAL else {"asyncio": asyncio.new_event_loop}
