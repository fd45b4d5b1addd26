"""A bundle as text for people: every field of it that is not at its default, in the order of the document."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from terraflow.contracts.document import BundleDocument

_PARTS = ("tenants", "applications", "workloads", "contracts", "capabilities", "budgets")
_NAMING = ("id", "tenant", "level", "of", "window")
"""Fields that make an entry's heading."""


def outline(document: BundleDocument) -> Iterator[str]:
    """The document's lines. Nothing is left out but fields at their defaults, which the reference tells."""
    yield f"sequence {document.sequence}, issued {_text(document.issued)}, expires {_text(document.expires)}"
    if document.class_defaults:
        yield f"class_defaults {_text(document.class_defaults)}"
    for part in _PARTS:
        entries = getattr(document, part)
        yield ""
        yield f"{part}" if entries else f"{part}: none"
        for entry in entries:
            yield from _entry(entry)


def _entry(entry: msgspec.Struct) -> Iterator[str]:
    fields = dict(_given(entry))
    named = [
        f"tenant {fields.pop(name)}" if name == "tenant" else str(fields.pop(name))
        for name in _NAMING
        if name in fields
    ]
    yield "  " + ", ".join(named)
    for name, value in fields.items():
        yield f"    {name}: {_text(value)}"


def _given(entry: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """The fields that are not at their defaults."""
    for field in msgspec.structs.fields(entry):
        value = getattr(entry, field.name)
        absent = field.default_factory() if callable(field.default_factory) else field.default
        if value != absent:
            yield field.name, value


def _text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "yes" if value else "no"
        case Enum():
            return str(value.value)
        case datetime():
            return value.isoformat()
        case tuple():
            return ", ".join(map(_text, value)) or "none"
        case dict():
            return ", ".join(f"{_text(key)} {_text(below)}" for key, below in value.items()) or "none"
        case msgspec.Struct():
            return _text(dict(_given(value)))
    return str(value)
