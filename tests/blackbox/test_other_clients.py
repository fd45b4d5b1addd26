"""Clients that others wrote, unmodified, in processes of their own against the real process: each for plain and
streamed answers, tools and structured output, as far as it has them, and for a refusal.

What each understood is compared with what the model said, and what the model was asked with what the client wanted.
"""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site
from tests.clients.model import AFTER_TOOLS, SAID, TOTAL, engine
from tests.clients.process import heard, node, python
from tests.harness import bundle
from tests.harness.batches import answer_key
from tests.harness.bundle import Json, limit, purpose, remote
from tests.harness.upstreams import USAGE, Upstreams
from tests.providers.vendor import Vendor

WHOLE = "".join(SAID)
STREAMED = {"pieces": list(SAID), "used": USAGE["total_tokens"]}
WITH_TOOLS = {"said": "".join(AFTER_TOOLS), "called": [{"city": "Pune"}]}
CALLED = {"name": "weather", "given": {"city": "Pune"}}
BATCHES = {"cancelled": True, "newest": True, "deleted": True, "gone": "NotFoundError"}
REFUSED = {"kind": "RateLimitError", "status": 429, "code": Governed.BUDGET_EXHAUSTED}


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(engine)


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor, tmp_path_factory: pytest.TempPathFactory) -> Site:
    key = answer_key(tmp_path_factory.mktemp("key") / "key")
    model = remote("engine", vendor.port)
    return launch_shared(
        bundle.document(
            purpose("work", model, tools=["weather", "Total", "PartialTotal", "IterableTotal", "Mended"]),
            purpose("extract", model, output={"requested_schema": True}),
            purpose("night", model, priority=3),
            purpose("poor", model, tools=["Total"]),
            budgets=[limit("workload", "poor", "hour", "0.000001")],
        ),
        answer_key_file=key,
    )


class Asked:
    """What the model was asked meanwhile."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._before = len(vendor.requests)

    @property
    def bodies(self) -> list[Json]:
        """Each request's body, in order."""
        return [request.body for request in self._vendor.requests[self._before :]]

    @property
    def kinds(self) -> str:
        """A letter each: `t` with tools, `s` with a schema, `p` with neither; a capital where it was streamed."""
        return "".join(_kind(body) for body in self.bodies)


def _kind(body: Json) -> str:
    letter = "t" if "tools" in body else "s" if "response_format" in body else "p"
    return letter.upper() if body.get("stream") else letter


@pytest.fixture
def asked(vendor: Vendor) -> Asked:
    return Asked(vendor)


@pytest.mark.parametrize(("script", "kinds"), [("openai.mjs", "pPttTsSpp"), ("anthropic.mjs", "pPttTsSp")])
def test_the_vendors_clients_for_node(script: str, kinds: str, site: Site, asked: Asked) -> None:
    """Behind what each asks stand the items of the batches, of which the cancelled one runs as many as it had begun."""
    parts = heard(node(script), site)
    assert parts["plain"]["said"] == WHOLE
    assert parts["plain"]["id"] == parts["plain"]["header"]
    assert parts["plain"]["id"].startswith("req_")
    assert parts["streamed"] == STREAMED
    assert parts["tools"] == WITH_TOOLS
    assert parts["toolsStreamed"] == CALLED
    assert parts["structured"] == parts["structuredStreamed"] == TOTAL
    assert parts["governed"] == ["engine", "engine"]
    assert parts["refused"] == REFUSED
    assert {"extract", "poor", "work"} <= set(parts["models"])
    assert parts.get("counted", 1) > 0
    assert parts.get("batch") == ({"custom_id": "first", "said": WHOLE} if script == "openai.mjs" else None)
    assert parts.get("batches") == (BATCHES if script == "openai.mjs" else None)
    assert asked.kinds.startswith(kinds)
    assert set(asked.kinds[len(kinds) :]) <= {"p"}


@pytest.mark.parametrize(("vendors", "kinds"), [("openai", "pPttTSstsp"), ("anthropic", "pPttTSstp")])
def test_langchain(vendors: str, kinds: str, site: Site, asked: Asked) -> None:
    """Over Anthropic's client it has no mode of mere JSON."""
    parts: dict[str, Any] = heard(python("through_langchain.py", vendors), site)
    assert parts == {
        "plain": WHOLE,
        "streamed": STREAMED,
        "tools": WITH_TOOLS,
        "toolsStreamed": CALLED,
        "structuredStreamed": TOTAL,
        "structured": TOTAL,
        "structuredByFunction": TOTAL,
        "structuredAsJson": TOTAL if vendors == "openai" else None,
        "governed": "engine",
        "refused": REFUSED,
    }
    assert asked.kinds == kinds


@pytest.mark.parametrize(("vendors", "kinds"), [("openai", "ptTTsttt"), ("anthropic", "ptTTpttt")])
def test_instructor(vendors: str, kinds: str, site: Site, asked: Asked) -> None:
    """Over Anthropic's client it asks for a schema in words."""
    parts = heard(python("through_instructor.py", vendors), site)
    assert parts == {
        "plain": WHOLE,
        "structuredByFunction": TOTAL,
        "structuredStreamed": TOTAL,
        "several": [TOTAL, TOTAL],
        "structured": TOTAL,
        "mended": TOTAL,
        "governed": "engine",
        "refused": REFUSED,
    }
    assert asked.kinds == kinds


@pytest.mark.parametrize(("vendors", "kinds"), [("openai", "TTpPs"), ("anthropic", "TTPPs")])
def test_the_llm_command(vendors: str, kinds: str, site: Site, asked: Asked) -> None:
    """Its plugin for Anthropic streams whatever it is told."""
    parts = heard(python("through_llm.py", vendors), site)
    assert parts == {
        "plain": WHOLE,
        "streamed": WHOLE,
        "tools": {"said": "".join(AFTER_TOOLS), "called": True},
        "structured": TOTAL,
        "governed": True,
        "refused": {"exit": 1, "told": True},
    }
    assert asked.kinds == kinds
