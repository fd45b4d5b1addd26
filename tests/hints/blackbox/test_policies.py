"""Policies as an operator changes them under a running service, and whose templates and topologies a caller sees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from terraflow.core.reasons import Lookup, Render
from tests.hints.blackbox.served import Client, Served, chain, until, update

TEMPLATE = """
---
apiVersion: inferencecache.io/v1alpha1
kind: PromptTemplate
metadata: {{name: greeting, namespace: {tenant}}}
spec: {{body: "{text}"}}
"""
POLICY = """
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {{name: default, namespace: acme}}
spec: {{minimumMatchedTokens: {tokens}}}
"""


def swap(mount: Path, version: int, text: str) -> None:
    """A version of `a.yaml`, as the kubelet mounts it."""
    fresh = mount / f"..v{version}"
    fresh.mkdir(parents=True)
    (fresh / "a.yaml").write_text(text)
    (mount / "..data_tmp").symlink_to(fresh.name)
    (mount / "..data_tmp").rename(mount / "..data")


def says(client: Client, text: bytes) -> Callable[[], bool]:
    return lambda: client.render("acme/greeting", "acme").rendered_prompt == text


def test_a_mounted_folder_is_followed_and_a_bad_version_is_not(tmp_path: Path) -> None:
    mount = tmp_path / "policies"
    swap(mount, 1, POLICY.format(tokens=64) + TEMPLATE.format(tenant="acme", text="one"))
    (mount / "a.yaml").symlink_to("..data/a.yaml")
    with Served(tmp_path, insecure_producers=True, policy_dir=mount) as served:
        client = served.client()
        client.report(update("r1", [b"a"], tenant_id="acme"), update("r2", [b"b"], tenant_id="acme"))
        assert client.lookup("acme", **chain([b"a"])).reason_code == Lookup.PREFIX_MATCH
        swap(mount, 2, POLICY.format(tokens=65) + TEMPLATE.format(tenant="acme", text="two"))
        until(says(client, b"two"))
        assert client.lookup("acme", **chain([b"a"])).reason_code == Lookup.AFFINITY_HINT
        swap(mount, 3, POLICY.format(tokens=-1) + TEMPLATE.format(tenant="acme", text="three"))
        until(lambda: served.metric("terraflow_hints_policy_problems") == 1.0)
        assert "a.yaml:5: spec.minimumMatchedTokens" in served.errors()
        assert says(client, b"two")()
        assert client.lookup("acme", **chain([b"a"])).reason_code == Lookup.AFFINITY_HINT
        swap(mount, 4, POLICY.format(tokens=64) + TEMPLATE.format(tenant="acme", text="four"))
        until(says(client, b"four"))
        assert client.lookup("acme", **chain([b"a"])).reason_code == Lookup.PREFIX_MATCH
        assert served.metric("terraflow_hints_policy_problems") == 0.0


def test_a_bound_caller_sees_its_own_tenants_templates_alone(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "a.yaml").write_text("".join(TEMPLATE.format(tenant=tenant, text=tenant) for tenant in ("acme", "rival")))
    command = [Path(sys.executable).with_name("terraflow"), "hints", "token", "--key", tmp_path / "k.pem", "--new-key"]
    made = subprocess.run(
        [*command, "--name", "gateway", "--tenant", "acme"], check=True, capture_output=True, text=True, timeout=30
    )
    public = next(tmp_path.glob("k*.pub*"))
    with Served(tmp_path, policy_dir=folder, token_keys=public) as served:
        bound = served.client(token=made.stdout.strip())
        assert bound.render("acme/greeting", "acme").rendered_prompt == b"acme"
        for template, tenant in (("rival/greeting", "acme"), ("acme/greeting", "rival"), ("rival/greeting", "rival")):
            assert bound.render(template, tenant).reason_code == Render.TEMPLATE_NOT_FOUND
        assert served.client().render("rival/greeting", "acme").rendered_prompt == b"rival"
