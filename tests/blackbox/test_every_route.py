"""What every route of `/v1` answers alike before it does anything of its own, each in the shape of its mouth."""

from __future__ import annotations

import json
from typing import NamedTuple

import httpx2
import pytest

from terraflow.core.reasons import Governed, ModelApi
from terraflow.gateway.http.routes import ROUTES
from tests.blackbox.conftest import Launch, Site
from tests.faults.plane import CLOCK_JUMPED
from tests.harness import bundle
from tests.harness.bundle import purpose, sim
from tests.harness.caller import CANARY, body_of, raw_request, request_bytes
from tests.harness.checks import Checks
from tests.harness.mouths import mouth_of

EVERY_ROUTE = [(method, path.replace("*", "req_" + "0" * 32)) for method, path in ROUTES]
TWICE = "X-TerraFlow-Workload: plain"
TOO_LONG = f"X-Filler: {'x' * 17_000}"


class Case(NamedTuple):
    """What is wrong: with the head, with the method, or in the plane."""

    code: Governed | ModelApi
    lines: tuple[str, ...] = ()
    field: str | None = None
    key: bool = True
    method: str | None = None
    fault: str = ""
    named: bool = False


# fmt: off
CASES = {
    "no-key":      Case(Governed.APP_UNAUTHENTICATED, key=False),
    "unknown-key": Case(Governed.APP_UNAUTHENTICATED, (f"x-api-key: tf_{CANARY}",), key=False),
    "twice":       Case(ModelApi.INVALID_REQUEST, (TWICE, TWICE), "x-terraflow-workload"),
    "long":        Case(ModelApi.INVALID_REQUEST, (TOO_LONG,), "headers"),
    "method":      Case(ModelApi.NOT_FOUND, method="PATCH", named=True),
    "unknown":     Case(ModelApi.INVALID_REQUEST, (f"X-TerraFlow-Data-Clas: {CANARY}",), "headers", named=True),
    "shed":        Case(Governed.QUEUE_SHED, fault="behind"),
    "store-gone":  Case(Governed.EVIDENCE_UNAVAILABLE, fault="find_key"),
    "fault":       Case(Governed.INTERNAL_ERROR, fault="find_key broken"),
}
# fmt: on


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    return launch_shared(bundle.document(purpose("plain", sim("one"))), faults=True)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("method", "path"), EVERY_ROUTE, ids=lambda value: value.removeprefix("/v1/"))
def test_what_no_route_gets_to_see(method: str, path: str, case: Case, site: Site, checks: Checks) -> None:
    before = site.folder.rows("SELECT count(*) FROM leaf")
    lines = [*case.lines, *([f"Authorization: Bearer {site.caller.api_key}"] if case.key else ())]
    with site.plane.fault(case.fault):
        reply = raw_request(site.plane, request_bytes(lines, b"{}", path, method=case.method or method))
    assert reply is not None
    assert checks.raised.wire(reply.status, reply.headers, reply.body, path) is case.code
    parts = (reply.status, reply.headers, json.loads(reply.body), case.code, case.field, case.named)
    checks.ungoverned_parts(*parts, mouth_of(path))
    assert CANARY.encode() not in reply.body
    assert site.folder.rows("SELECT count(*) FROM leaf") == before


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/openapi.json"])
def test_heads_are_read_alike_outside(path: str, site: Site, checks: Checks) -> None:
    reply = raw_request(site.plane, request_bytes([TWICE, TWICE], b"", path, method="GET"))
    assert reply is not None
    code = ModelApi.INVALID_REQUEST
    assert checks.raised.wire(reply.status, reply.headers, reply.body, path) is code
    checks.ungoverned_parts(
        reply.status, reply.headers, json.loads(reply.body), code, "x-terraflow-workload", named=False
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json"])
def test_what_stands_outside_is_only_read(path: str, method: str, site: Site, checks: Checks) -> None:
    reply = raw_request(site.plane, request_bytes([], b"{}", path, method=method))
    assert reply is not None
    code = ModelApi.NOT_FOUND
    assert checks.raised.wire(reply.status, reply.headers, reply.body, path) is code
    checks.ungoverned_parts(reply.status, reply.headers, json.loads(reply.body), code, None, named=False)


def _of_the_bundle(site: Site) -> list[httpx2.Response]:
    """What the routes beside governance say that read the bundle."""
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body_of()}
    batch = site.caller.post(line, {"Content-Type": "application/jsonl"}, "/batches")
    return [site.caller.get("/models"), site.caller.get("/models/plain"), batch]


def test_what_reads_the_bundle_needs_one(launch: Launch, checks: Checks) -> None:
    for response in _of_the_bundle(launch(None)):
        checks.ungoverned(response, Governed.BUNDLE_INVALID)


def test_what_reads_the_bundle_reads_none_that_has_expired(site: Site, checks: Checks) -> None:
    with site.plane.fault(CLOCK_JUMPED):
        responses = _of_the_bundle(site)
    for response in responses:
        checks.ungoverned(response, Governed.BUNDLE_EXPIRED)
