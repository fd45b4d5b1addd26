"""Which workload a request is for, and which capability it pins (steps 4 and 5): pure, over a verified bundle.

1. The workload is the one that is named (header, or the field of an invocation), else the one that `model` names,
   else the application's default.
2. A `model` that names a capability of the bundle or an alias of the contract pins that capability. Any other name
   pins nothing and is no error.
3. What another tenant has does not exist: its workloads are unknown, whether named or in `model`.
"""

from __future__ import annotations

import msgspec

from terraflow.contracts.bundle import Bundle
from terraflow.contracts.contract import ContractState
from terraflow.contracts.workload import Workload
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import Instant


class Resolution(msgspec.Struct, frozen=True):
    """The workload, and the id of the capability that was pinned."""

    workload: Workload
    pinned: str | None


def resolve(
    bundle: Bundle, tenant: str, application: str, named: str | None, model: str | None, now: Instant
) -> Resolution | Refuse:
    """The resolution for a caller, or UNKNOWN_WORKLOAD, TENANT_MISMATCH, APP_NOT_ENTITLED_TO_WORKLOAD or
    CONTRACT_NOT_EXECUTABLE (detail: the contract's state, `not_effective` or `past_expiry`), in this order."""
    caller = bundle.applications.get((tenant, application))
    by_model = named is None and model is not None and (tenant, model) in bundle.workloads
    if named is not None:
        chosen = named
    elif by_model and model is not None:
        chosen = model
    elif caller is not None:
        chosen = caller.default_workload
    else:
        return Refuse(reason=Governed.APP_NOT_ENTITLED_TO_WORKLOAD, detail="application_unknown")
    workload = bundle.workloads.get((tenant, chosen))
    if workload is None:
        return Refuse(reason=Governed.UNKNOWN_WORKLOAD)
    if workload.contract.tenant != tenant:
        return Refuse(reason=Governed.TENANT_MISMATCH)
    if caller is None or chosen not in caller.workloads:
        return Refuse(reason=Governed.APP_NOT_ENTITLED_TO_WORKLOAD)
    not_executable = _not_executable(workload, now)
    if not_executable is not None:
        return Refuse(reason=Governed.CONTRACT_NOT_EXECUTABLE, detail=not_executable)
    return Resolution(workload, None if model is None or by_model else pinned_by(bundle, workload, model))


def _not_executable(workload: Workload, now: Instant) -> str | None:
    state = workload.contract.state
    if state is not ContractState.APPROVED:
        return state.value
    if not workload.effective_from <= now:
        return "not_effective"
    if not now < workload.expires_at:
        return "past_expiry"
    return None


def pinned_by(bundle: Bundle, workload: Workload, model: str) -> str | None:
    """The capability that a name pins, itself or as an alias of the contract."""
    return model if model in bundle.capabilities else workload.contract.aliases.get(model)
