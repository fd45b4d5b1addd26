"""What must hold between the parts of a bundle, beyond the form of each: `find_problems` lists every breach.

1. Every name that is used is defined, once, and means one thing.
2. Nothing that was agreed can be undone elsewhere in the document: a contract's floor raises a class, an approver
   is not the author, a fallback stays among the contract's capabilities.
3. A rule that a request must be told about is not checked here (see `verify`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from terraflow.contracts.capability import DIALECTS, Boundary, Capability, Lifecycle, ProviderKind
from terraflow.contracts.compiled import ANY
from terraflow.contracts.contract import Contract, ContractState
from terraflow.contracts.document import BundleDocument
from terraflow.contracts.fleet import Fleet
from terraflow.contracts.schemas import SchemaInvalid, compile_schema
from terraflow.contracts.workload import CLASS_DEFAULTS
from terraflow.core.budget import Level
from terraflow.core.outcome import Problem
from terraflow.core.reasons import Governed
from terraflow.core.types import DATA_CLASSES

InsideBoundary = Callable[[str], bool]
"""Whether a host (name or address) lies in the organisation's private networks."""

Found = Iterable[Problem]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def find_problems(document: BundleDocument, inside_boundary: InsideBoundary | None = None) -> tuple[Problem, ...]:
    """Everything that keeps a well-formed document from being enforced; empty when nothing does."""
    found: list[Problem] = []
    found += _document(document)
    found += _names(document)
    found += _applications(document)
    found += _workloads(document)
    found += _budgets(document)
    for contract in document.contracts:
        found += _contract(document, contract, f"contracts[{contract.id}]")
    for capability in document.capabilities:
        found += _capability(capability, inside_boundary, f"capabilities[{capability.id}]")
    return tuple(found)


def find_notices(document: BundleDocument) -> tuple[Problem, ...]:
    """What the author should know: names that lead to a refusal at request time, and to nothing."""
    capabilities = {capability.id: capability for capability in document.capabilities}
    notices: list[Problem] = []
    for contract in document.contracts:
        if contract.state is not ContractState.APPROVED:
            notices.append(Problem(f"contracts[{contract.id}].state", f"is {contract.state}: nothing runs under it"))
        for name in contract.capabilities:
            lifecycle = capabilities[name].lifecycle
            if lifecycle is not Lifecycle.APPROVED:
                rule = f"names {name}, which is {lifecycle} and will be excluded"
                notices.append(Problem(f"contracts[{contract.id}].capabilities", rule))
    notices += [
        Problem(f"capabilities[{capability.id}].prices", "are unknown: it will be excluded")
        for capability in document.capabilities
        if capability.paid and capability.prices is None
    ]
    return tuple(notices)


def _document(document: BundleDocument) -> Found:
    if document.expires <= document.issued:
        yield Problem("expires", "must be later than `issued`")


def _names(document: BundleDocument) -> Found:
    """Ids that stand twice, and names that could mean two things."""
    capabilities = [capability.id for capability in document.capabilities]
    workloads = [(workload.tenant, workload.id) for workload in document.workloads]
    yield from _twice("tenants", [tenant.id for tenant in document.tenants])
    yield from _twice("capabilities", capabilities)
    yield from _twice("contracts", [contract.id for contract in document.contracts])
    yield from _twice("workloads", workloads)
    yield from _twice("applications", [(entry.tenant, entry.id) for entry in document.applications])
    for tenant in document.tenants:
        yield from _twice(f"tenants[{tenant.id}].business_units", tenant.business_units)
    capability_names, workload_names = set(capabilities), set(workloads)
    for name in sorted({name for _, name in workloads} & capability_names):
        yield Problem(f"workloads[{name}]", "has the name of a capability")
    for contract in document.contracts:
        for alias in contract.aliases:
            if alias in capability_names:
                yield Problem(f"contracts[{contract.id}].aliases", f"{alias} is the name of a capability")
            if (contract.tenant, alias) in workload_names:
                yield Problem(f"contracts[{contract.id}].aliases", f"{alias} is the name of a workload")


def _twice(path: str, names: Iterable[object]) -> Found:
    for name, count in Counter(names).items():
        if count > 1:
            text = "/".join(name) if isinstance(name, tuple) else str(name)
            yield Problem(f"{path}[{text}]", f"is defined {count} times")


def _applications(document: BundleDocument) -> Found:
    tenants = {tenant.id for tenant in document.tenants}
    workloads = {(workload.tenant, workload.id) for workload in document.workloads}
    for entry in document.applications:
        path = f"applications[{entry.id}]"
        if entry.tenant not in tenants:
            yield Problem(f"{path}.tenant", f"{entry.tenant} is no tenant of the bundle")
        for name in entry.workloads:
            if (entry.tenant, name) not in workloads:
                yield Problem(f"{path}.workloads", f"{name} is no workload of its tenant")
        if entry.default_workload not in entry.workloads:
            yield Problem(f"{path}.default_workload", "is not one of its workloads")


def _workloads(document: BundleDocument) -> Found:
    units = {tenant.id: tenant.business_units for tenant in document.tenants}
    contracts = {contract.id for contract in document.contracts}
    for entry in document.workloads:
        path = f"workloads[{entry.id}]"
        if entry.tenant not in units:
            yield Problem(f"{path}.tenant", f"{entry.tenant} is no tenant of the bundle")
        elif entry.business_unit not in units[entry.tenant]:
            yield Problem(f"{path}.business_unit", f"{entry.business_unit} is no business unit of its tenant")
        if entry.contract not in contracts:
            yield Problem(f"{path}.contract", f"{entry.contract} is no contract of the bundle")


def _budgets(document: BundleDocument) -> Found:
    owners = {Level.TENANT: {(tenant.id, tenant.id) for tenant in document.tenants}}
    owners[Level.BUSINESS_UNIT] = {(tenant.id, unit) for tenant in document.tenants for unit in tenant.business_units}
    owners[Level.WORKLOAD] = {(workload.tenant, workload.id) for workload in document.workloads}
    for at, budget in enumerate(document.budgets):
        if (budget.tenant, budget.of) not in owners[budget.level]:
            yield Problem(f"budgets[{at}].of", f"is no {budget.level} of tenant {budget.tenant}")
    yield from _twice("budgets", [(entry.tenant, entry.level, entry.of, entry.window) for entry in document.budgets])


def _contract(document: BundleDocument, contract: Contract, path: str) -> Found:
    if contract.tenant not in {tenant.id for tenant in document.tenants}:
        yield Problem(f"{path}.tenant", f"{contract.tenant} is no tenant of the bundle")
    if contract.expires_at <= contract.effective_from:
        yield Problem(f"{path}.expires_at", "must be later than `effective_from`")
    if contract.state is ContractState.APPROVED and contract.approver in (None, contract.author):
        yield Problem(f"{path}.approver", "an approved contract has an approver who is not its author")
    for field in ("families", "jurisdictions"):
        allowed = getattr(contract, field)
        if ANY in allowed and len(allowed) > 1:
            yield Problem(f"{path}.{field}", f'says "{ANY}" beside others: one or the other')
    for field in (
        "capabilities",
        "families",
        "jurisdictions",
        "data_classes",
        "sensitive_types",
        "tiers",
        "tools",
    ):
        yield from _twice(f"{path}.{field}", getattr(contract, field))
    yield from _class_floor(document, contract, path)
    yield from _contract_routes(document, contract, path)
    if contract.output.json_schema is not None:
        try:
            compile_schema(contract.output.json_schema)
        except SchemaInvalid as error:
            yield Problem(f"{path}.output.json_schema", str(error))


def _class_floor(document: BundleDocument, contract: Contract, path: str) -> Found:
    for trigger, label in contract.class_floor.items():
        given = document.class_defaults.get(trigger)
        before = CLASS_DEFAULTS[trigger] if given is None else DATA_CLASSES[given]
        if DATA_CLASSES[label] < before:
            yield Problem(f"{path}.class_floor.{trigger}", f"lowers the bundle's {before.label}; it may only raise it")


def _contract_routes(document: BundleDocument, contract: Contract, path: str) -> Found:
    capabilities = {capability.id: capability for capability in document.capabilities}
    allowed = set(contract.capabilities)
    for name in contract.capabilities:
        if name not in capabilities:
            yield Problem(f"{path}.capabilities", f"{name} is no capability of the bundle")
        elif capabilities[name].tier not in contract.tiers:
            yield Problem(f"{path}.tiers", f"lacks {capabilities[name].tier}, the tier of {name}")
    if contract.default_tier not in contract.tiers:
        yield Problem(f"{path}.default_tier", "is not one of its tiers")
    named = [("aliases", name) for name in contract.aliases.values()]
    named += [("safe_path", contract.safe_path)] if contract.safe_path is not None else []
    for source, targets in (contract.fallback or {}).items():
        named += [("fallback", source), *(("fallback", target) for target in targets)]
        if source in targets:
            yield Problem(f"{path}.fallback.{source}", "falls back to itself")
        yield from _twice(f"{path}.fallback.{source}", targets)
    for field, name in dict.fromkeys(named):
        if name not in allowed:
            yield Problem(f"{path}.{field}", f"{name} is not one of the contract's capabilities")
    baseline = contract.baseline_capability
    if baseline is not None and baseline not in capabilities:
        yield Problem(f"{path}.baseline_capability", f"{baseline} is no capability of the bundle")


def _capability(capability: Capability, inside_boundary: InsideBoundary | None, path: str) -> Found:
    for field in ("sensitive_types", "consequence_tiers"):
        yield from _twice(f"{path}.{field}", getattr(capability, field))
    if capability.output_tokens_max > capability.context_window_tokens:
        yield Problem(f"{path}.output_tokens_max", "is above the context window")
    if capability.dialect not in DIALECTS[capability.provider]:
        known = ", ".join(sorted(DIALECTS[capability.provider]))
        yield Problem(f"{path}.dialect", f"{capability.dialect} is none of {capability.provider}: {known}")
    simulated = capability.provider is ProviderKind.SIMULATED
    if capability.script is not None and not simulated:
        yield Problem(f"{path}.script", "only a simulated capability has one")
    if (capability.fleet is None) is (capability.provider is ProviderKind.FLEET):
        yield Problem(f"{path}.fleet", "a capability of kind fleet has one, and no other")
        return
    if capability.fleet is not None:
        yield from _fleet(capability, capability.fleet, inside_boundary, path)
        return
    if simulated:
        for field in ("endpoint", "secret"):
            if getattr(capability, field) is not None:
                yield Problem(f"{path}.{field}", "a simulated capability calls nothing")
        return
    if capability.endpoint is not None:
        yield from _endpoint(capability, capability.endpoint, inside_boundary, f"{path}.endpoint")
    elif capability.boundary is Boundary.PRIVATE:
        yield Problem(f"{path}.endpoint", "a private capability needs its address")


def _fleet(capability: Capability, fleet: Fleet, inside_boundary: InsideBoundary | None, path: str) -> Found:
    if capability.endpoint is not None:
        yield Problem(f"{path}.endpoint", "a fleet's replicas have the endpoints")
    if (fleet.tokenizer is None) is not (fleet.scheme is None):
        yield Problem(f"{path}.fleet.scheme", "goes with `tokenizer`: give both, or neither")
    yield from _twice(f"{path}.fleet.replicas", [replica.id for replica in fleet.replicas])
    if not any(replica.enabled for replica in fleet.replicas):
        yield Problem(f"{path}.fleet.replicas", "are all switched off: disable the capability instead")
    for replica in fleet.replicas:
        at = f"{path}.fleet.replicas[{replica.id}]"
        yield from _endpoint(capability, replica.endpoint, inside_boundary, f"{at}.endpoint")
        if replica.metrics is not None:
            yield from _endpoint(capability, replica.metrics, inside_boundary, f"{at}.metrics")
        for field in ("events", "replay"):
            address = getattr(replica, field)
            if address is not None:
                yield from _event_address(address, inside_boundary, f"{at}.{field}")
        for field in ("replay", "metrics"):
            if getattr(replica, field) is not None and replica.events is None:
                yield Problem(f"{at}.{field}", "is read with `events`, which are not given")


def _event_address(address: str, inside_boundary: InsideBoundary | None, path: str) -> Found:
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port
    except ValueError:
        host, port, url = None, None, None
    if url is None or url.scheme != "tcp" or not host or not port or url.path or url.query or url.username:
        yield Problem(path, "is tcp://HOST:PORT")
    elif inside_boundary is not None and not inside_boundary(host):
        outside = Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY
        yield Problem(path, f"{outside.value}: its host is not in the private networks")


def _endpoint(capability: Capability, endpoint: str, inside_boundary: InsideBoundary | None, path: str) -> Found:
    try:
        url = urlsplit(endpoint)
        host, port = url.hostname, url.port
    except ValueError:
        yield Problem(path, "is not a URL")
        return
    if url.scheme not in ("http", "https") or not host or port == 0:
        yield Problem(path, "is an http or https URL with a host")
        return
    if url.username is not None or url.password is not None or url.query or url.fragment:
        yield Problem(path, "has neither credentials nor query nor fragment; a credential is named by `secret`")
    if any(character.isspace() or not character.isprintable() for character in endpoint):
        yield Problem(path, "holds a space or a control character")
    if capability.boundary is Boundary.EXTERNAL:
        if url.scheme == "http" and host not in _LOOPBACK:
            yield Problem(path, "an external capability is called over https")
    elif inside_boundary is not None and not inside_boundary(host):
        outside = Governed.PRIVATE_ENDPOINT_OUTSIDE_BOUNDARY
        yield Problem(path, f"{outside.value}: its host is not in the private networks")
