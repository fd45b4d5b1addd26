"""What a contract accepts of a request before any route is looked at (steps 9 and 10): tools, class, types.

1. A request's class is the most sensitive of what its caller declared, what each sensitive type in it is given,
   and what the scan says outright (attachments). With nothing found and nothing declared it is that of
   `undeclared`.
2. Nothing here lowers a class: declaring less than was found changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from terraflow.contracts.workload import Workload
from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed
from terraflow.core.types import DataClass, SensitiveType


class Accepted(msgspec.Struct, frozen=True):
    """The class and the types that the request is treated as having."""

    data_class: DataClass
    sensitive_types: frozenset[SensitiveType]


def accept_tools(workload: Workload, names: Iterable[str]) -> Refuse | None:
    """TOOL_NOT_PERMITTED for any offered tool that the contract does not list."""
    if workload.tools.issuperset(names):
        return None
    return Refuse(reason=Governed.TOOL_NOT_PERMITTED)


def accept_class(
    workload: Workload,
    declared: DataClass | None,
    sensitive_types: frozenset[SensitiveType],
    scanned: DataClass | None = None,
) -> Accepted | Refuse:
    """The request's class by rule 1, or DATA_CLASS_UNDECLARED or DATA_CLASS_NOT_PERMITTED.

    `sensitive_types` are those declared and those found; `scanned` is a class that the scan gives by itself.
    """
    if declared is None and workload.contract.require_class:
        return Refuse(reason=Governed.DATA_CLASS_UNDECLARED)
    least = workload.class_of["undeclared"] if declared is None else declared
    given = [workload.class_of[kind] for kind in sensitive_types]
    data_class = max(least, *given, scanned if scanned is not None else least)
    highest = workload.data_class_max
    if highest is None or data_class > highest:
        return Refuse(reason=Governed.DATA_CLASS_NOT_PERMITTED, detail=data_class.label)
    if not sensitive_types <= workload.sensitive_types:
        return Refuse(reason=Governed.DATA_CLASS_NOT_PERMITTED, detail="sensitive_type")
    return Accepted(data_class, sensitive_types)
