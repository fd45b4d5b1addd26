"""How a plane listens: TLS of its own, proxies that it trusts, and bodies that come slowly or not at all."""

from __future__ import annotations

import datetime
import resource
import ssl
import time
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CHAT, body_of, raw_request, until
from tests.harness.checks import Checks
from tests.harness.plane import NotServing

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: plane\r\n\r\n"
DOCUMENT = bundle.document(purpose("plain", sim("one")))


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "cert.pem", folder / "cert.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private


def test_tls_by_certificate_files(launch: Launch, tmp_path: Path, checks: Checks) -> None:
    certificate, private = _certificate(tmp_path)
    site = launch(DOCUMENT, tls_cert_file=certificate, tls_key_file=private)
    assert site.plane.base_url.startswith("https://")
    url = site.plane.base_url.replace("127.0.0.1", "localhost") + CHAT
    trusted = ssl.create_default_context(cafile=str(certificate))
    with httpx2.Client(verify=trusted) as client:
        response = client.post(url, json=body_of(), headers=site.caller.authorization)
    assert checks.raised(response) is Governed.PERMITTED


def test_only_trusted_proxies_are_heard(launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT, trusted_proxies=["10.0.0.0/8"])
    for response in (site.caller.ask(), site.caller.get("/models")):
        checks.ungoverned(response, ModelApi.INVALID_REQUEST, field="connection", named=False)


def test_an_address_that_is_reachable_from_outside_needs_one_or_the_other(launch: Launch) -> None:
    with pytest.raises(NotServing, match="reachable from outside"):
        launch(DOCUMENT, bind_host="0.0.0.0")


def test_an_unknown_setting_is_no_start(launch: Launch) -> None:
    with pytest.raises(NotServing, match="unknown setting no_such_setting"):
        launch(DOCUMENT, no_such_setting=1)


def test_a_body_that_does_not_come(launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT, body_timeout_s=1)
    lines = [f"Authorization: Bearer {site.caller.api_key}", "Host: plane", "Content-Length: 100"]
    head = "\r\n".join([f"POST /v1{CHAT} HTTP/1.1", *lines, "", ""]).encode()
    reply = raw_request(site.plane, head + b'{"messages"')
    assert reply is not None
    assert checks.raised.wire(reply.status, reply.headers, reply.body, f"/v1{CHAT}") is ModelApi.INVALID_REQUEST
    with site.connect() as left:
        left.send(head + b'{"messages"')
    assert site.caller.ask().status_code == 200
    [(leaves,)] = site.folder.rows("SELECT count(*) FROM leaf")
    assert leaves == 2, "only the last one was ever governed"


def _has_place(site: Site) -> bool:
    """Whether a connection is kept now: one for which there is no place is closed at once."""
    with site.connect() as tried:
        return tried.silent(0.5)


def test_connections_are_bounded_by_address(launch: Launch) -> None:
    site = launch(DOCUMENT, trusted_proxies=["10.0.0.0/8"], connections_per_address_max=2)
    with site.connect() as first, site.connect() as second:
        for connection in (first, second):
            assert connection.ask(HEALTH).status == 200
        with site.connect() as third:
            assert third.closed()
    until(lambda: raw_request(site.plane, HEALTH) is not None)
    assert "connections refused, for want of a place" in site.plane.errors()


def test_a_trusted_proxy_is_bounded_in_all_alone(launch: Launch, checks: Checks) -> None:
    site = launch(DOCUMENT, trusted_proxies=["127.0.0.0/8"], connections_per_address_max=1, connections_max=4)
    with site.connect() as first, site.connect() as second, site.connect() as third:
        for connection in (first, second, third):
            assert connection.ask(HEALTH).status == 200
        assert checks.raised(site.caller.ask()) is Governed.PERMITTED
        with site.connect() as fifth:
            assert fifth.closed()


def test_where_there_is_no_proxy_this_machine_is_bounded_in_all_alone(launch: Launch) -> None:
    site = launch(DOCUMENT, connections_per_address_max=1)
    with site.connect() as first, site.connect() as second:
        assert first.ask(HEALTH).status == second.ask(HEALTH).status == 200


def test_when_there_is_no_descriptor_accepting_rests(launch: Launch) -> None:
    site = launch(DOCUMENT)
    with site.connect() as first, site.connect() as second:
        assert first.ask(HEALTH).status == second.ask(HEALTH).status == 200
        before = resource.prlimit(site.plane.pid, resource.RLIMIT_NOFILE)
        # What is open stays so; nothing more is opened.
        resource.prlimit(site.plane.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with site.connect() as waiting:
            waiting.send(HEALTH)
            assert waiting.silent(1.5)
            assert first.ask(HEALTH).status == second.ask(HEALTH).status == 200
            assert 1 <= site.plane.errors().count("no connection can be accepted") <= 3
            resource.prlimit(site.plane.pid, resource.RLIMIT_NOFILE, before)
            assert waiting.hear().status == 200


def test_a_tls_handshake_that_does_not_come_is_given_up(launch: Launch, tmp_path: Path) -> None:
    certificate, private = _certificate(tmp_path)
    site = launch(DOCUMENT, tls_cert_file=certificate, tls_key_file=private, connections_max=2)
    begun = time.monotonic()
    with site.connect() as silent, site.connect() as slow:
        slow.send(b"\x16\x03\x01")
        with site.connect() as third:
            assert third.closed(), "handshakes are counted"
        silent.socket.settimeout(20)
        assert silent.closed() and slow.closed()
    assert 9 < time.monotonic() - begun < 20
    # A caller sees its end before the plane has its place back, and a TLS client that is then refused leaves its socket
    # to the collector (`ssl.SSLSocket` does not close one that was reset before its handshake).
    until(lambda: _has_place(site))
    trusted = ssl.create_default_context(cafile=str(certificate))
    url = site.plane.base_url.replace("127.0.0.1", "localhost").removesuffix("/v1")
    with httpx2.Client(verify=trusted) as client:
        assert client.get(url + "/healthz").status_code == 200
