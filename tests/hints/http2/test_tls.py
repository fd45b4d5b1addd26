"""TLS on the one port: whom it lets in, whom it knows, and what happens when its files change."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager

import grpc
import pytest
from cryptography.hazmat.primitives import serialization

from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.methods import Inline
from terraflow.hints.http2.server import Server
from terraflow.hints.http2.tls import ReloadedTls, TlsFiles
from tests.hints.http2.authority import Authority, written
from tests.hints.http2.raw import PREFACE, settings

METHODS = {"/t/Who": Inline(lambda _, call: repr(call.peer.certificate).encode())}


@asynccontextmanager
async def served(tmp_path, ours: Authority, theirs: Authority | None = None, required=False, **limits):
    certificate, key = written(tmp_path, "server", ours.give("server.test"))
    ca = None
    if theirs is not None:
        ca = tmp_path / "ca.pem"
        ca.write_bytes(theirs.pem)
    server = Server(
        METHODS,
        limits=Limits(**limits),
        tls=TlsFiles(certificate=certificate, key=key, client_ca=ca, required=required),
    )
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.stop(0.2)
        assert server.shared.addresses.total() == 0


async def who(port: int, authority: Authority, client=None) -> dict:
    credentials = grpc.ssl_channel_credentials(authority.pem, client and client.key, client and client.certificate)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
        return eval(await channel.unary_unary("/t/Who")(b"", timeout=20))


async def test_a_client_that_trusts_the_authority_is_served(tmp_path):
    authority = Authority()
    async with served(tmp_path, authority) as (_, port):
        assert await who(port, authority) is None


async def test_a_clients_certificate_is_known_to_the_handler(tmp_path):
    authority, clients = Authority(), Authority("clients")
    async with served(tmp_path, authority, clients) as (_, port):
        known = await who(port, authority, clients.give("engine-1", "spiffe://fleet/engine-1"))
        assert ("URI", "spiffe://fleet/engine-1") in known["subjectAltName"]
        assert await who(port, authority) is None


@pytest.mark.parametrize("client", [None, "other"])
async def test_a_client_without_a_good_certificate_is_refused_where_one_is_required(tmp_path, client):
    authority, clients = Authority(), Authority("clients")
    presented = None if client is None else Authority("other").give("engine-1")
    async with served(tmp_path, authority, clients, required=True) as (_, port):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await who(port, authority, presented)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert (await who(port, authority, clients.give("engine-1")))["subject"]


async def test_a_bad_certificate_is_refused_where_none_is_required(tmp_path):
    authority, clients = Authority(), Authority("clients")
    async with served(tmp_path, authority, clients) as (_, port):
        with pytest.raises(grpc.aio.AioRpcError):
            await who(port, authority, Authority("other").give("engine-1"))


@pytest.mark.parametrize("protocols", [None, ["http/1.1"]])
async def test_alpn_must_choose_http2(tmp_path, protocols):
    authority = Authority()
    async with served(tmp_path, authority) as (server, port):
        context = ssl.create_default_context(cadata=authority.pem.decode())
        if protocols:
            context.set_alpn_protocols(protocols)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        told = await asyncio.wait_for(reader.read(), 10)
        assert b"ALPN" in told
        writer.close()
        assert server.shared.tally["goaway_INADEQUATE_SECURITY"] == 1


async def test_plaintext_on_a_tls_port_and_silence_are_cut_off(tmp_path):
    authority = Authority()
    async with served(tmp_path, authority, handshake_s=0.3, connections_per_address_max=3) as (server, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        plain, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PREFACE + settings())
        assert await asyncio.wait_for(plain.read(), 10) is not None
        fourth, also = await asyncio.open_connection("127.0.0.1", port)
        for reader, _ in silent:
            assert await asyncio.wait_for(reader.read(), 10) == b""
        for one in (writer, also, *(writer for _, writer in silent)):
            one.close()
        del fourth
        for _ in range(200):
            if not server.shared.addresses.total():
                break
            await asyncio.sleep(0.02)
        assert await who(port, authority) is None


async def test_new_files_count_for_new_connections(tmp_path, monkeypatch):
    monkeypatch.setattr("terraflow.hints.http2.server._RELOAD_S", 0.05)
    first, second = Authority("first"), Authority("second")
    async with served(tmp_path, first) as (_, port):
        credentials = grpc.ssl_channel_credentials(first.pem)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            old = channel.unary_unary("/t/Who")
            assert await old(b"", timeout=20) == b"None"
            written(tmp_path, "server", second.give("server.test"))
            for _ in range(100):
                try:
                    await who(port, second)
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
            assert await who(port, second) is None
            assert await old(b"", timeout=20) == b"None"
            with pytest.raises(grpc.aio.AioRpcError):
                await who(port, first)


def test_files_that_are_no_good_leave_the_former_context(tmp_path):
    certificate, key = written(tmp_path, "server", Authority().give("server.test"))
    reloaded = ReloadedTls(TlsFiles(certificate=certificate, key=key))
    context = reloaded.context
    assert not reloaded.refresh()
    certificate.write_bytes(b"rubbish")
    for _ in range(2):
        with pytest.raises(OSError):
            reloaded.refresh()
    certificate.unlink()
    with pytest.raises(OSError):
        reloaded.refresh()
    assert reloaded.context is context
    written(tmp_path, "server", Authority().give("server.test"))
    assert reloaded.refresh()
    assert reloaded.context is not context


AT_A_TERMINAL = """
import os, pty, sys
from pathlib import Path
from terraflow.hints.http2.tls import TlsFiles, context
pid, terminal = pty.fork()
if pid == 0:
    try:
        context(TlsFiles(certificate=Path(sys.argv[1]), key=Path(sys.argv[2])))
    except OSError:
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_an_encrypted_key_is_no_good_and_nobody_is_asked_for_its_password(tmp_path):
    certificate, key = written(tmp_path, "server", Authority().give("server.test"))
    plain = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"password")
    key.write_bytes(plain.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    told = subprocess.run(
        [sys.executable, "-c", AT_A_TERMINAL, certificate, key], capture_output=True, timeout=20, check=True
    )
    assert told.stdout == b"7\n"


async def test_files_that_stay_bad_are_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr("terraflow.hints.http2.server._RELOAD_S", 0.01)
    certificate, key = written(tmp_path, "server", Authority().give("server.test"))
    told = []
    server = Server({}, tls=TlsFiles(certificate=certificate, key=key), on_fault=lambda place, _: told.append(place))
    await server.start("127.0.0.1", 0)
    certificate.write_bytes(b"rubbish")
    await asyncio.sleep(0.2)
    certificate.unlink()
    await asyncio.sleep(0.2)
    assert told == ["tls", "tls"]
    await server.stop()


async def test_a_client_that_goes_away_before_it_is_greeted_leaves_nothing(tmp_path):
    authority = Authority()
    async with served(tmp_path, authority) as (server, port):
        for _ in range(20):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.close()
        os.sched_yield()
        for _ in range(200):
            await asyncio.sleep(0.02)
            if server.shared.tally["connections"] and not server.shared.addresses.total():
                break
        assert server.shared.addresses.total() == 0
