"""A running hint service, looked at from outside: is it there, is it well, is it fed, and do lookups work.

1. Nothing is changed but by the probe, which cleans up after itself.
2. Each look has its own time limit; one that fails says so and the others go on.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from terraflow.app.grpc_noise import quiet_grpc
from terraflow.app.hints_findings import Checkup, Finding, found, summed
from terraflow.app.hints_judged import judge_feeds, judge_replicas, judge_tenants, lost_replicas, ruled, samples
from terraflow.app.hints_lint import lint
from terraflow.app.loading import is_loopback
from terraflow.hints.policy.policies import Policies
from terraflow.hints.policy.sources import Origin
from terraflow.hints.service.overview import Overview
from terraflow.hints.service.pages import InForce
from terraflow.hints.service.probe import ProbeRequest, ProbeResult

quiet_grpc()
import grpc  # noqa: E402 - its core reads the environment as it is imported
import grpc.aio  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402

CERTIFICATE_ENDS_SOON = timedelta(days=14)
BODY_BYTES_MAX = 8 << 20
PROBE = ProbeRequest(backend="terraflow/doctor", model="doctor", hash_scheme="doctor", backend_type="none")


class Patient(NamedTuple):
    """Where the service is. Addresses are `host:port`; an empty one is not looked at. `manifests`: to lint as well."""

    grpc: str
    public: str
    internal: str
    token: str | None
    tls: bool = False
    ca: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    server_name: str | None = None
    manifests: Path | None = None
    timeout_s: float = 5.0


class BadFiles(Exception):
    """A file that a flag names and that cannot be used."""


async def examine(patient: Patient) -> Checkup:
    """Everything that is found, in a fixed order. Raises BadFiles."""
    policies, findings = (None, []) if patient.manifests is None else lint(patient.manifests)
    if patient.grpc:
        findings += [finding async for finding in _grpc(patient)]
    timeout = aiohttp.ClientTimeout(total=patient.timeout_s)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        metrics: dict[str, Any] = {}
        if patient.public:
            findings += [finding async for finding in _public(session, patient.public, metrics)]
        if patient.internal:
            findings += [finding async for finding in _internal(session, patient, policies, metrics)]
    return summed(findings)


# gRPC and its certificate


async def _grpc(patient: Patient) -> AsyncIterator[Finding]:
    where = patient.grpc
    if not patient.tls:
        local = is_loopback(where.rpartition(":")[0].strip("[]"))
        yield found("TL001" if local else "TL002", where, "the gRPC port is spoken to in plaintext")
    elif (tls := await _certificate(patient)) is not None:
        yield tls
        if tls.code in ("TL003", "TL005"):
            return
    try:
        async with asyncio.timeout(patient.timeout_s), _channel(patient) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest())
    except TimeoutError:
        yield found("SV001", where, f"it did not answer within {patient.timeout_s:g} s")
    except grpc.aio.AioRpcError as error:
        said = " ".join((error.details() or "").split())
        step = next((step for mark, step in UNHEALTHY if mark in said or mark == error.code().name), "")
        yield found("SV001", where, f"the health check failed: {error.code().name}, {said}", step)
    else:
        name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        yield found("SV003" if name == "SERVING" else "SV002", where, f"the health check says {name}")


def _channel(patient: Patient) -> grpc.aio.Channel:
    options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
    if not patient.tls:
        return grpc.aio.insecure_channel(patient.grpc, options=options)
    if patient.server_name is not None:
        options.append(("grpc.ssl_target_name_override", patient.server_name))
    files = (patient.ca, patient.client_key, patient.client_cert)
    credentials = grpc.ssl_channel_credentials(*(None if file is None else _read(file) for file in files))
    return grpc.aio.secure_channel(patient.grpc, credentials, options=options)


UNHEALTHY = (
    ("Socket closed", "If it speaks TLS, say so with --tls, or --ca and who signed its certificate."),
    ("http1.x", "Something else answers there: give the gRPC port with --endpoint."),
    ("UNIMPLEMENTED", "Another gRPC server answers there, without health: give the service's own with --endpoint."),
)
"""What stands in gRPC's own words, or its code, and what to do then."""


async def _certificate(patient: Patient) -> Finding | None:
    """None where nobody listens, which the health check says."""
    where = patient.grpc
    host, _, port = where.rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context(cafile=patient.ca)
        if patient.client_cert is not None:
            context.load_cert_chain(patient.client_cert, patient.client_key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise BadFiles(f"--ca, --client-cert or --client-key cannot be used: {error}") from None
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(patient.timeout_s):
            name = patient.server_name or host
            _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
    except TimeoutError:
        step = "See whether the service answers there at all; if it speaks plaintext, say so with --plaintext."
        return found("TL005", where, f"there was no handshake within {patient.timeout_s:g} s", step)
    except ssl.SSLCertVerificationError as error:
        code = "TL003" if "expired" in error.verify_message else "TL005"
        return found(code, where, f"the certificate does not verify: {error.verify_message}")
    except (ConnectionRefusedError, socket.gaierror):
        return None
    except OSError as error:
        step = "Speak to it with --plaintext, or give the service tls_cert_file and tls_key_file."
        if isinstance(error, ssl.SSLError) and "ALERT" in str(error):
            step = "It has TLS and hangs up: give --client-cert and --client-key where it wants a certificate."
        return found("TL005", where, f"there is no TLS here: {error.strerror or error}", step)
    try:
        certificate = writer.get_extra_info("peercert")
    finally:
        writer.close()
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
    soon = ends - datetime.now(UTC) < CERTIFICATE_ENDS_SOON
    return found("TL004" if soon else "TL006", where, f"the certificate is good until {ends:%Y-%m-%d %H:%M} UTC")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadFiles(f"{file} cannot be read: {error.strerror}") from None


# The public listener


async def _public(session: aiohttp.ClientSession, where: str, metrics: dict[str, Any]) -> AsyncIterator[Finding]:
    try:
        _, _ = await _ask(session, "GET", f"http://{where}/healthz")
        status, said = await _ask(session, "GET", f"http://{where}/readyz")
        if status == 200:
            yield found("HL003", where, "it says that it is ready")
        else:
            yield found("HL002", where, f"it is not ready: {said.decode('utf-8', 'replace').strip()[:200]}")
        _, exposition = await _ask(session, "GET", f"http://{where}/metrics")
        metrics |= {family.name: family for family in text_string_to_metric_families(exposition.decode())}
        for sample in samples(metrics, "terraflow_hints_policy_problems"):
            if sample.value:
                yield found(
                    "CP006", where, f"its folder is refused for {sample.value:.0f} reasons; what was stays in force"
                )
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        yield found("HL001", where, f"health and metrics cannot be read: {_said(error)}")


# The internal listener


async def _internal(
    session: aiohttp.ClientSession, patient: Patient, policies: Policies | None, metrics: dict[str, Any]
) -> AsyncIterator[Finding]:
    where = patient.internal
    headers = {} if patient.token is None else {"Authorization": f"Bearer {patient.token}"}
    try:
        status, body = await _ask(session, "GET", f"http://{where}/snapshot", headers)
    except (aiohttp.ClientError, TimeoutError) as error:
        yield found("SN001", where, f"GET /snapshot failed: {_said(error)}")
        return
    if status in (401, 403):
        told = "no token was given" if patient.token is None else "the token is not this service's"
        yield found("SN005", where, f"GET /snapshot wants a token: {told}")
        return
    if status != 200:
        yield found("SN001", where, f"GET /snapshot answered {status}")
        return
    try:
        overview = msgspec.json.decode(body, type=Overview)
    except msgspec.DecodeError as error:
        yield found("SN002", where, f"GET /snapshot did not answer with a snapshot: {error}")
        return
    yield found("SN004", where, f"{overview.total_prefixes} blocks of {len(overview.tenants)} tenants are known")
    if patient.token is None:
        yield found("SN003", where, "the internal listener answers without a token")
    policy, in_force = await _policy(session, where, headers)
    for finding in (*judge_replicas(overview, lost_replicas(metrics)), *judge_feeds(metrics)):
        yield finding
    for finding in judge_tenants(overview, ruled(in_force, policies), metrics):
        yield finding
    yield policy
    yield await _probe(session, where, headers)


async def _policy(
    session: aiohttp.ClientSession, where: str, headers: dict[str, str]
) -> tuple[Finding, InForce | None]:
    """Whether it is there, and what is in force by it; a service that only takes posts says no more than that."""
    try:
        status, body = await _ask(session, "GET", f"http://{where}/policy", headers)
    except (aiohttp.ClientError, TimeoutError) as error:
        return found("PL001", where, f"GET /policy failed: {_said(error)}"), None
    if status == 404:
        return found("PL001", where, "there is no /policy"), None
    if status == 405:
        return found("PL002", where, "/policy is there"), None
    if not 200 <= status < 300:
        return found("PL003", where, f"GET /policy answered {status}"), None
    try:
        shown = msgspec.json.decode(body, type=InForce)
    except msgspec.DecodeError:
        return found("PL003", where, "GET /policy does not say what is in force"), None
    if shown.source is Origin.NONE:
        return found("PL002", where, "/policy is there; no policies are in force, so the defaults hold"), shown
    whence = "from the folder" if shown.source is Origin.FOLDER else "as posted"
    counted = f"cache policies {len(shown.policies)}, quotas {len(shown.tenants)}"
    return found("PL002", where, f"in force {whence}, since {shown.since}: {counted}"), shown


async def _probe(session: aiohttp.ClientSession, where: str, headers: dict[str, str]) -> Finding:
    try:
        status, body = await _ask(session, "POST", f"http://{where}/probe", headers, msgspec.json.encode(PROBE))
    except (aiohttp.ClientError, TimeoutError) as error:
        return found("PB001", where, f"POST /probe failed: {_said(error)}")
    if status == 404:
        return found("PB001", where, "there is no /probe")
    try:
        result = msgspec.json.decode(body, type=ProbeResult) if status == 200 else None
    except msgspec.DecodeError:
        result = None
    if result is None:
        return found("PB003", where, f"POST /probe answered {status} and no result")
    if "failed" in (result.ingest, result.routing, result.t2):
        return found("PB004", where, "; ".join(f"{error.stage}: {error.message}" for error in result.errors))
    t2 = " (no service of this kind has a second tier to ask)" if result.t2 == "skipped" else ""
    return found("PB002", where, f"ingest {result.ingest}, routing {result.routing}, t2 {result.t2}{t2}")


async def _ask(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, bytes]:
    async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
        return response.status, await response.content.read(BODY_BYTES_MAX)


def _said(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
