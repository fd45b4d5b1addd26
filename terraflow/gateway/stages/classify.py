"""Step 10: how sensitive the request is, by what it declares and by what it holds.

A long text is scanned in steps, each in its turn.
"""

from __future__ import annotations

from functools import partial

from terraflow.classify.findings import ClassDefaults, Findings, TooLarge, class_of
from terraflow.classify.scan import Steps
from terraflow.classify.surface import Surface, collect
from terraflow.contracts.workload import Workload
from terraflow.core.outcome import CONTINUE, Refuse, StepOutcome
from terraflow.core.reasons import Governed
from terraflow.core.types import DataClass, SensitiveType
from terraflow.gateway.exchange import Exchange
from terraflow.gateway.plane import Plane
from terraflow.gateway.turns import Turns

_TYPES = tuple(SensitiveType)


async def classify(plane: Plane, x: Exchange) -> StepOutcome:
    """INPUT_TOO_LARGE, DATA_CLASS_UNDECLARED or DATA_CLASS_NOT_PERMITTED (detail: `class` or the type)."""
    assert x.resolution is not None
    workload = x.resolution.workload
    if workload.contract.require_class and x.declared.data_class is None:
        return Refuse(reason=Governed.DATA_CLASS_UNDECLARED)
    try:
        surface = collect(x.request.document)
        steps = plane.scanner.steps(surface.groups, bytes_max=plane.limits.scan_bytes_max)
        findings = await _in_turns(plane.turns, steps)
    except TooLarge:
        return Refuse(reason=Governed.INPUT_TOO_LARGE, details={"scan_bytes_max": plane.limits.scan_bytes_max})
    if type(surface) is not Surface or type(findings) is not Findings:
        raise TypeError("the scan gave no findings")
    x.findings = findings
    x.attachments = surface.attachments
    x.data_class, x.sensitive_types = class_of(
        findings.types,
        declared=x.declared.data_class,
        declared_types=x.declared.sensitive_types,
        attachments=bool(surface.attachments),
        defaults=_defaults(workload),
    )
    if workload.data_class_max is None or x.data_class > workload.data_class_max:
        return Refuse(reason=Governed.DATA_CLASS_NOT_PERMITTED, detail="class", details=_found(x))
    unaccepted = x.sensitive_types - workload.sensitive_types
    if unaccepted:
        return Refuse(reason=Governed.DATA_CLASS_NOT_PERMITTED, detail=min(unaccepted).value, details=_found(x))
    return CONTINUE


async def _in_turns(turns: Turns, steps: Steps) -> Findings:
    """What the last step gives. A short text is one step, and takes no turn."""
    found = next(steps)
    while found is None:
        found = await turns.take(partial(next, steps))
    return found


def _found(x: Exchange) -> dict[str, object]:
    """What the request counts as, and which detectors say so: names and numbers, nothing of its text."""
    assert x.data_class is not None and x.findings is not None
    return {
        "data_class": x.data_class.label,
        "sensitive_types": sorted(x.sensitive_types),
        "found": dict(x.findings.counts),
        "attachments": x.attachments,
    }


def _defaults(workload: Workload) -> ClassDefaults:
    classes = workload.class_of
    return ClassDefaults(
        nothing=classes["undeclared"],
        attachment=DataClass.RESTRICTED,
        by_type={kind: classes[kind] for kind in _TYPES},
    )
