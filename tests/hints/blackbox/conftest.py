"""What the black-box tests of the hint service share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.bounded import bounded as bounded
from tests.hints.blackbox.served import RUNNING, Client, Served


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A failed test shows what the running services wrote."""
    report = yield
    if report.failed:
        report.sections += [(f"standard error of {served.folder.name}", served.errors()) for served in RUNNING]
    return report


POLICIES = """
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {{name: default, namespace: {tenant}}}
spec: {spec}
"""

TENANTS = {
    "requires-chain": "{strategy: {requireChain: true}}",
    "no-affinity": "{affinityRouting: Disabled}",
    "no-chain-matching": "{strategy: {enableChainMatching: false}}",
    "not-hot": "{strategy: {enableTenantHot: false}}",
    "long-prefixes": "{minimumPrefixTokens: 200}",
    "long-prefixes-only": "{minimumPrefixTokens: 200, affinityRouting: Disabled}",
    "any-match": '{minimumMatchedTokens: 0, routingFloorScore: "0"}',
    "hurried": "{lookupTimeoutMs: 1}",
}
"""Tenants with policies of their own, one a rule."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that takes reports of anybody, with the policies of `TENANTS` and a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("served")
    write_policies(folder / "policies")
    toml = '[tokenizers]\nm = "bytes"\n'
    with Served(folder, toml, insecure_producers=True, policy_dir=folder / "policies") as running:
        yield running


def write_policies(folder: Path) -> None:
    """The manifests of `TENANTS`."""
    folder.mkdir()
    for tenant, spec in TENANTS.items():
        (folder / f"{tenant}.yaml").write_text(POLICIES.format(tenant=tenant, spec=spec))


@pytest.fixture
def client(served: Served) -> Client:
    """A client of the shared service."""
    return served.client()
