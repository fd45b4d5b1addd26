"""A folder of manifests, looked at without a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from terraflow.app.hints_findings import Finding, found
from terraflow.hints.deciding.disagg import members
from terraflow.hints.policy.folder import FolderUnreadable, read_folder
from terraflow.hints.policy.policies import Policies, Topology
from terraflow.hints.policy.problems import PoliciesRefused


def lint(folder: Path) -> tuple[Policies | None, list[Finding]]:
    """The folder's policies, None when they are refused, and what there is to say of them."""
    try:
        policies = read_folder(folder)
    except PoliciesRefused as refused:
        places = [f"{folder}/{p.file}" + (f":{p.line}" if p.line else "") for p in refused.problems]
        said = [f"{problem.field} {problem.rule}".strip() for problem in refused.problems]
        return None, [found("CP004", *each) for each in zip(places, said, strict=True)]
    except FolderUnreadable as trouble:
        return None, [found("CP005", str(folder), str(trouble))]
    counts = (
        (len(policies.cache), "CachePolicy"),
        (len(policies.quotas), "CacheTenant with a quota"),
        (len(policies.templates), "PromptTemplate"),
        (len(policies.topologies), "PDTopology"),
        (len(policies.labels), "labelled replica" if len(policies.labels) == 1 else "labelled replicas"),
    )
    said = [f"{count} {what}" for count, what in counts if count]
    findings = [found("CP002", str(folder), f"the manifests are sound: {', '.join(said) or 'there are none'}")]
    for ref in sorted(policies.topologies):
        findings += _topology(policies.topologies[ref], policies)
    return policies, findings


def _topology(topology: Topology, policies: Policies) -> Iterator[Finding]:
    resource = f"PDTopology/{topology.ref}"
    sound = True
    if not topology.hash_scheme:
        sound = False
        yield found("PD001", resource, "it names no hash scheme, so that every lookup of it ends without a hint")
    for field, pools in (("prefillPools", topology.prefill_pools), ("decodePools", topology.decode_pools)):
        if not pools:
            sound = False
            yield found("PD002", resource, f"it has no {field}")
        for pool in pools if policies.labels else ():
            there = len(members([pool], policies.labels))
            if there < max(pool.replicas, 1):
                sound = False
                wanted = f" of {pool.replicas}" if pool.replicas else ""
                yield found("PD002", resource, f"replicas.yaml labels {there}{wanted} replicas of its pool {pool.name}")
    if sound:
        yield found("PD003", resource, "it has a hash scheme and pools")
