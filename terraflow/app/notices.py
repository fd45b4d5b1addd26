"""What an operator should know about a sound bundle before requests show it: refusals that are already certain.

1. A notice is no ground to refuse a bundle: each is about something that callers are told with a reason code.
2. A workload is asked about with the request that has the least against it. If even that one has no model, none has.
3. Credentials and names are looked up where the command runs, which may not be where the plane does; the notices say
   "here".
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from terraflow.app.expiry import DAY, SOON
from terraflow.app.runtime import SystemClock
from terraflow.app.settings import read_secret
from terraflow.contracts.bundle import Bundle
from terraflow.contracts.capability import Capability, Lifecycle
from terraflow.contracts.contract import ContractState
from terraflow.contracts.routes import Condition, RequestFacts, evaluate
from terraflow.contracts.workload import Workload, instant
from terraflow.core.outcome import Problem
from terraflow.core.reasons import Governed
from terraflow.core.types import DataClass, Instant
from terraflow.evidence.record import rfc3339
from terraflow.providers.endpoint import parse_place

Secret = Callable[[str], str | None]
LOOKUPS_AT_ONCE = 16

_LEAST = RequestFacts(
    data_class=DataClass.PUBLIC,
    sensitive_types=frozenset(),
    tools_offered=False,
    input_bytes=1,
    output_tokens_max=1,
    audio=False,
)


def notices_here(bundle: Bundle) -> tuple[Problem, ...]:
    """The notices of a bundle, as of now and of this machine. Looks names up, which may take seconds."""
    return (*find_notices(bundle, SystemClock().now(), read_secret), *_unresolved(_used(bundle)))


def find_notices(bundle: Bundle, now: Instant, secret: Secret) -> tuple[Problem, ...]:
    """The notices that need no network: the bundle's own, those of time, of credentials and of workloads."""
    return (
        *bundle.notices,
        *_of_time(bundle, now),
        *_unset(_used(bundle), secret),
        *(notice for workload in bundle.workloads.values() for notice in _of_workload(workload, secret)),
    )


def _used(bundle: Bundle) -> list[Capability]:
    """The capabilities that some contract names and that nothing in the bundle itself switches off."""
    named = {name for contract in bundle.document.contracts for name in contract.capabilities}
    return [
        capability
        for capability in bundle.capabilities.values()
        if capability.id in named and capability.enabled and capability.lifecycle is Lifecycle.APPROVED
    ]


def _of_time(bundle: Bundle, now: Instant) -> Iterator[Problem]:
    left = bundle.expires_at - now
    if left <= SOON:
        when = (
            f"is in {left // DAY} days" if left >= 2 * DAY else "is in less than two days" if left > 0 else "has passed"
        )
        yield Problem("expires", f"{when}: every request is refused from then on ({Governed.BUNDLE_EXPIRED})")
    for contract in bundle.document.contracts:
        path = f"contracts[{contract.id}]"
        if contract.state is not ContractState.APPROVED:
            continue
        if now < instant(contract.effective_from):
            begins = rfc3339(instant(contract.effective_from))
            yield Problem(f"{path}.effective_from", f"is {begins}: nothing runs under it before that")
        if instant(contract.expires_at) <= now:
            yield Problem(f"{path}.expires_at", "has passed: nothing runs under it")


def _unset(used: Iterable[Capability], secret: Secret) -> Iterator[Problem]:
    for capability in used:
        if capability.secret is not None and secret(capability.secret) is None:
            rule = f"{capability.secret} is not set here: it is off where the plane runs without it"
            yield Problem(f"capabilities[{capability.id}].secret", rule)


def _of_workload(workload: Workload, secret: Secret) -> Iterator[Problem]:
    path, contract = f"workloads[{workload.tenant}/{workload.id}]", workload.contract
    if contract.tenant != workload.tenant:
        rule = f"{contract.id} is of tenant {contract.tenant}: every request is refused ({Governed.TENANT_MISMATCH})"
        yield Problem(f"{path}.contract", rule)
    if workload.data_class_max is None:
        yield Problem(f"{path}.contract", f"{contract.id} accepts no data class: every request is refused")
    conditions = {
        route.capability.id: Condition(
            enabled=True,
            secret_present=_has_secret(route.capability.definition, secret),
            healthy=True,
            inside_boundary=True,
            has_free_slot=True,
            under_pressure=False,
        )
        for route in workload.survey.routes
    }
    verdicts = [v for v in evaluate(workload.survey, _LEAST, conditions) if v.capability in contract.capabilities]
    if not any(verdict.permitted for verdict in verdicts):
        why = ", ".join(f"{verdict.capability} {verdict.exclusion} {verdict.detail}".rstrip() for verdict in verdicts)
        yield Problem(path, f"has no model that could answer it: {why or 'its contract names none'}")


def _has_secret(capability: Capability, secret: Secret) -> bool:
    return capability.secret is None or secret(capability.secret) is not None


def _unresolved(used: Iterable[Capability]) -> Iterator[Problem]:
    """Capabilities one of whose hosts has no address here."""
    named = [
        (f"capabilities[{capability.id}].{field}", host)
        for capability in used
        for field, endpoint in capability.endpoints
        if (host := _host(endpoint)) is not None
    ]
    hosts = sorted({host for _, host in named})
    with ThreadPoolExecutor(LOOKUPS_AT_ONCE) as threads:
        found = dict(zip(hosts, threads.map(_resolves, hosts), strict=True))
    for path, host in named:
        if not found[host]:
            yield Problem(path, f"{host} does not resolve here: calls to it fail")


def _host(endpoint: str) -> str | None:
    try:
        place = parse_place(endpoint)
    except ValueError:
        return None
    return None if place.literal else place.host


def _resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False
