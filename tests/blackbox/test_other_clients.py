"""Clients that others wrote, unmodified, in processes of their own against the real process: each for plain and
streamed answers, tools and structured output, as far as it has them, and for a refusal.

What each understood is compared with what the model said, and what the model was asked with what the client wanted.
"""

from __future__ import annotations

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site
from tests.clients.model import AFTER_TOOLS, SAID, TOTAL, engine
from tests.clients.process import heard, node
from tests.harness import bundle
from tests.harness.bundle import Json, limit, purpose, remote
from tests.harness.upstreams import USAGE, Upstreams
from tests.providers.vendor import Vendor

TOTAL_TOKENS = USAGE["total_tokens"]
WORKLOADS = ["extract", "poor", "work"]


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(engine)


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    model = remote("engine", vendor.port)
    return launch_shared(
        bundle.document(
            purpose("work", model, tools=["weather", "Total"]),
            purpose("extract", model, output={"requested_schema": True}),
            purpose("poor", model),
            budgets=[limit("workload", "poor", "hour", "0.000001")],
        )
    )


def _since(vendor: Vendor, before: int) -> list[Json]:
    return [request.body for request in vendor.requests[before:]]


def _streamed(bodies: list[Json]) -> list[bool]:
    return [body.get("stream") is True for body in bodies]


@pytest.mark.parametrize("script", ["openai.mjs", "anthropic.mjs"])
def test_the_vendors_clients_for_node(script: str, site: Site, vendor: Vendor) -> None:
    before = len(vendor.requests)
    parts = heard(node(script), site)
    assert parts["plain"]["said"] == "".join(SAID)
    assert parts["plain"]["id"] == parts["plain"]["header"]
    assert parts["plain"]["id"].startswith("req_")
    assert parts["streamed"] == {"pieces": list(SAID), "used": TOTAL_TOKENS}
    assert parts["tools"] == {"said": "".join(AFTER_TOOLS), "called": [{"city": "Pune"}]}
    assert parts["toolsStreamed"] == {"name": "weather", "given": {"city": "Pune"}}
    assert parts["structured"] == TOTAL
    assert parts["refused"] == {"kind": "RateLimitError", "status": 429, "code": Governed.BUDGET_EXHAUSTED}
    assert set(WORKLOADS) <= set(parts["models"])
    assert parts.get("counted", 1) > 0
    assert _streamed(_since(vendor, before)) == [False, True, False, False, True, False]
