"""TLS to the outside: the name is verified although the address is pinned, and leaving is immediate here too."""

from __future__ import annotations

import datetime
import ssl
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from terraflow.app.runtime import SystemClock
from terraflow.contracts.capability import ProviderKind
from terraflow.contracts.script import Act
from terraflow.ports.upstream import Failure, ProviderFailure
from terraflow.providers.open import open_provider
from terraflow.providers.outbound import Outbound
from tests.providers.sample import call, capability, collect, reaching, text_of
from tests.providers.speakers import speak_openai
from tests.providers.vendor import Vendor

HOST = "models.example.com"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for HOST and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def serving(certificate: Path, act: Act) -> Vendor:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return await Vendor(speak_openai(act)).start(tls=context)


def trusting(trusted: Path | None) -> AbstractAsyncContextManager[Outbound]:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    tls = None if trusted is None else ssl.create_default_context(cafile=str(trusted))
    return reaching(resolve=resolve, tls=tls)


@pytest.mark.parametrize(
    ("host", "trust", "works"),
    [(HOST, True, True), ("other.example.com", True, False), (HOST, False, False)],
    ids=["the right name", "another name", "a stranger's signature"],
)
async def test_the_certificate_must_be_the_names(certificate: Path, host: str, trust: bool, works: bool):
    vendor = await serving(certificate, Act(text="hi"))
    async with vendor, trusting(certificate if trust else None) as outbound:
        asked = capability(ProviderKind.OPENAI, endpoint=f"https://{host}:{vendor.port}/v1")
        provider = (await open_provider(asked, "k", outbound, SystemClock())).provider
        if works:
            assert text_of(await collect(provider, call(stream=True))) == "hi"
            return
        with pytest.raises(ProviderFailure) as caught:
            await provider.complete(call())
    assert (caught.value.failure, caught.value.reached) == (Failure.CONNECT, False)
    assert vendor.requests == []


async def test_closing_a_stream_does_not_wait_for_the_peers_farewell(certificate: Path):
    vendor = await serving(certificate, Act(text="abcdefgh", chunk_interval_ms=50))
    async with vendor, trusting(certificate) as outbound:
        asked = capability(ProviderKind.OPENAI, endpoint=f"https://{HOST}:{vendor.port}/v1")
        provider = (await open_provider(asked, "k", outbound, SystemClock())).provider
        chunks = provider.stream(call(stream=True))
        await anext(chunks)
        left = time.monotonic()
        await chunks.aclose()
        assert await vendor.closing() - left < 0.1
