"""What the two HTTP listeners answer.

1. Public: `/healthz` (the process answers), `/readyz` (it is in service), `/metrics`.
2. Internal: `GET /snapshot`, `GET|POST|PUT /policy`, `POST /probe`, `POST /explain`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec
from aiohttp import web

from terraflow.hints.live import LiveHints
from terraflow.hints.policy.posted import BODY_BYTES_MAX, PostedPolicy, PostedTenant, as_posted
from terraflow.hints.policy.problems import PoliciesRefused
from terraflow.hints.policy.sources import Origin, PolicySources
from terraflow.hints.service.explaining import ExplainRequest, explained
from terraflow.hints.service.http import Refused, Routes, json_response, read_body, read_json
from terraflow.hints.service.overview import overview
from terraflow.hints.service.probe import ProbeRequest, run_probe
from terraflow.hints.words import MESSAGE_BYTES_MAX

PROBE_BYTES_MAX = 4096


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /policy`: what is in force, in the words in which it is posted, where it came from and since when."""

    source: Origin
    since: str
    policies: tuple[PostedPolicy, ...]
    tenants: tuple[PostedTenant, ...]


def in_force(sources: PolicySources) -> InForce:
    """The page as things stand now."""
    policies, tenants = as_posted(sources.in_force)
    since = datetime.fromtimestamp(sources.since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return InForce(source=sources.origin, since=since, policies=policies, tenants=tenants)


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def public_routes(metrics: Callable[[], Awaitable[bytes]], unready: Callable[[], str]) -> Routes:
    """`metrics` renders the exposition off the loop; `unready` says why not to send traffic here, "" when one may."""

    async def healthz(_request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.BaseRequest) -> web.Response:
        why = unready()
        return web.Response(text=f"{why}\n" if why else "ok\n", status=503 if why else 200)

    async def exposition(_request: web.BaseRequest) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": METRICS_TYPE})

    return {"/healthz": {"GET": healthz}, "/readyz": {"GET": readyz}, "/metrics": {"GET": exposition}}


def internal_routes(live: LiveHints, sources: PolicySources) -> Routes:
    """For operators: what is known and in force, and whether it works."""

    async def snapshot(_request: web.BaseRequest) -> web.Response:
        return json_response(overview(live))

    async def policies(_request: web.BaseRequest) -> web.Response:
        return json_response(in_force(sources))

    async def policy(request: web.BaseRequest) -> web.Response:
        raw = await read_body(request, BODY_BYTES_MAX)
        try:
            await sources.post(raw)
        except PoliciesRefused as refused:
            problems = [{"field": problem.field, "rule": problem.rule} for problem in refused.problems]
            raise Refused(400, "the policies are refused and nothing changed", problems=problems) from None
        return web.Response(status=204)

    async def probe(request: web.BaseRequest) -> web.Response:
        return json_response(run_probe(live, await read_json(request, PROBE_BYTES_MAX, ProbeRequest, "probe")))

    async def explain(request: web.BaseRequest) -> web.Response:
        return json_response(explained(live, await read_json(request, MESSAGE_BYTES_MAX, ExplainRequest, "lookup")))

    return {
        "/snapshot": {"GET": snapshot},
        "/policy": {"GET": policies, "POST": policy, "PUT": policy},
        "/probe": {"POST": probe},
        "/explain": {"POST": explain},
    }
