"""Records whose fields have exactly the types they declare, or do not come to exist.

1. Python compares and contains values of types that do not belong together, and NaN with everything: a check over
   such a value can come out as permission. Whatever the exclusion table reads is therefore an `Exact` record.
2. `True` is not an integer here, a string is not a set of its letters, and no integer is negative.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

import msgspec


class PolicyEvaluationError(Exception):
    """The policy could not be evaluated, so nothing is permitted. The text names a field or type, no value."""


class Exact(msgspec.Struct, frozen=True, kw_only=True):
    """Checks its fields when built; raises PolicyEvaluationError for a value of another type."""

    def __post_init__(self) -> None:
        for name, kind, member in _fields(type(self)):
            value = getattr(self, name)
            found = type(value)
            if found not in kind:
                raise PolicyEvaluationError(f"{type(self).__name__}.{name} is not of its type")
            if found is frozenset:
                if any(type(item) is not member for item in value):
                    raise PolicyEvaluationError(f"{type(self).__name__}.{name} holds something of another type")
            elif (found is int and value < 0) or (found is str and not value):
                raise PolicyEvaluationError(f"{type(self).__name__}.{name} is out of range")


@functools.cache
def _fields(record: type[Exact]) -> tuple[tuple[str, frozenset[type], type | None], ...]:
    """Name, admitted types, and the type of a set's members, of each field.

    Fields whose types are other than plain ones and sets (references to whole documents) are only required to be
    of their class.
    """
    hints = typing.get_type_hints(record)
    return tuple((name, *_kind(hints[name])) for name in record.__struct_fields__)


def _kind(hint: Any) -> tuple[frozenset[type], type | None]:
    origin = typing.get_origin(hint)
    if origin is types.UnionType or origin is typing.Union:
        return frozenset(kind for arm in typing.get_args(hint) for kind in _kind(arm)[0]), None
    if origin is frozenset:
        return frozenset({frozenset}), typing.get_args(hint)[0]
    return frozenset({origin or hint}), None
