"""The manifests of the documentation are ones that can be applied, and its figures are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from terraflow.hints.deciding.disagg import members
from terraflow.hints.policy.manifests import parse_manifests
from terraflow.hints.policy.policies import CachePolicy, Policies
from terraflow.hints.policy.posted import parse_posted
from terraflow.hints.render import OUTPUT_BYTES_MAX, VARIABLES_MAX, render_template

PAGES = Path(__file__).parents[3] / "docs" / "hints"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)


def starter() -> Policies:
    files = {}
    for page in ("policies.md", "templates.md", "disaggregation.md"):
        for at, block in enumerate(blocks(page, "yaml")):
            name = "replicas.yaml" if block.startswith("# replicas.yaml") else f"{page}-{at}.yaml"
            files[name] = block.encode()
    return parse_manifests(files)


def test_the_manifests_of_the_pages_can_be_applied_together() -> None:
    found = starter()
    assert found.cache["acme"] == CachePolicy(
        ttl_s=1800.0, minimum_prefix_tokens=32, minimum_matched_share=0.05, lookup_timeout_ms=5
    )
    assert found.quotas == {"acme": 200_000}
    topology = found.topologies["acme/llama"]
    assert members(topology.prefill_pools, found.labels) == ["vllm-0"]
    assert members(topology.decode_pools, found.labels) == ["vllm-1", "vllm-2/dp0"]
    rendered = render_template("acme/support", {"role": "a clerk", "question": "Why?"}, "acme", found)
    assert rendered.prompt == b"You are a clerk. Answer in , and write {{ for a brace.\n\nWhy?\n"
    scope: dict[str, object] = {}
    exec(blocks("templates.md", "python")[0], scope)  # the page's own recipe
    stable = "You are a clerk. Answer in , and write {{ for a brace.\n\n"
    recipe = scope["stable_prefix_hash"]
    assert callable(recipe)
    assert recipe("acme", "acme/support", rendered.revision, stable) == rendered.stable_prefix_hash


def test_the_posted_body_of_the_page_can_be_posted() -> None:
    found = parse_posted(blocks("policies.md", "json")[0].encode())
    assert found.cache["acme"] == CachePolicy(ttl_s=1800.0, minimum_prefix_tokens=32, lookup_timeout_ms=5)
    assert found.quotas == {"acme": 200_000}


@pytest.mark.parametrize("field", ["CachePolicySpec", "Strategy", "CacheTenantSpec", "Quota"])
def test_every_field_is_on_the_page(field: str) -> None:
    from terraflow.hints.policy import kinds

    page = (PAGES / "policies.md").read_text()
    for name in getattr(kinds, field).__struct_encode_fields__:
        assert re.search(rf"`(\w+\.)?{name}", page), name


def test_the_bounds_of_the_page() -> None:
    page = (PAGES / "templates.md").read_text()
    assert f"{VARIABLES_MAX:,} variables".replace(",", " ") in page
    assert OUTPUT_BYTES_MAX == 1 << 20 and "1 MiB" in page
