"""The smallest instance of a JSON Schema, for an answer or a tool call that nobody scripted.

1. Deterministic, and always of some value: a schema that asks for what is not built here (patterns, unusual
   formats, conditions) gets an instance that may not satisfy it.
2. The size of an instance is bounded, whatever the schema: `NODES_MAX` values and `LENGTH_MAX` characters a text.
   A schema that refers to itself without end stops at the bound.
3. References are followed inside the schema alone (`#`, `#/…`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NODES_MAX = 1_000
LENGTH_MAX = 4_096
DEPTH_MAX = 32

_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
"""Names and addresses reserved for documentation (RFC 2606, 5737, 3849)."""


def smallest_instance(schema: Any) -> Any:
    """A value for a parsed schema."""
    return _Maker(schema).make(schema, 0)


class _Maker:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = NODES_MAX

    def make(self, schema: Any, depth: int) -> Any:
        self._left -= 1
        if not isinstance(schema, dict) or depth > DEPTH_MAX:
            return {} if schema is True else None
        if "const" in schema:
            return schema["const"]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            return options[0]
        if "$ref" in schema:
            return self.make(self._referred(schema["$ref"]), depth + 1)
        for choice in ("anyOf", "oneOf"):
            if isinstance(schema.get(choice), list) and schema[choice]:
                return self.make(schema[choice][0], depth + 1)
        if isinstance(schema.get("allOf"), list) and schema["allOf"]:
            return self.make(self._merged(schema), depth + 1)
        return self._of_kind(_kind(schema), schema, depth)

    def _of_kind(self, kind: str, schema: dict[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return _text(schema)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return False
            case _:
                return None

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        return {name: self.make(properties.get(name, {}), depth + 1) for name in names[:NODES_MAX] if self._left > 0}

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        first = schema.get("prefixItems")
        first = first if isinstance(first, list) else []
        made: list[Any] = []
        for place in range(_count(schema.get("minItems"))):
            if self._left <= 0:
                break
            made.append(self.make(first[place] if place < len(first) else schema.get("items", {}), depth + 1))
        return made

    def _referred(self, reference: Any) -> Any:
        found = self._root
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                return None
            found = found[name]
        return found

    def _merged(self, schema: dict[str, Any]) -> dict[str, Any]:
        merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if isinstance(part, dict) and "$ref" in part:
                part = self._referred(part["$ref"])
            if not isinstance(part, dict):
                continue
            for key, value in part.items():
                before = merged.get(key)
                if key == "properties" and isinstance(before, dict) and isinstance(value, dict):
                    merged[key] = {**before, **value}
                elif key == "required" and isinstance(before, list) and isinstance(value, list):
                    merged[key] = before + value
                else:
                    merged.setdefault(key, value)
        return merged


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if isinstance(kind, str):
        return kind
    if "properties" in schema or "required" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    return "string"


def _count(value: Any) -> int:
    return min(value, NODES_MAX) if type(value) is int and value > 0 else 0


def _text(schema: Mapping[str, Any]) -> str:
    form = schema.get("format")
    text = _FORMATS.get(form, "") if isinstance(form, str) else ""
    shortest = schema.get("minLength")
    return text.ljust(min(shortest, LENGTH_MAX), "x") if type(shortest) is int and shortest > 0 else text


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """Zero, or the value nearest to it that the bounds and the step allow."""
    step = abs(_figure(schema, "multipleOf") or 1)
    low, above = _figure(schema, "minimum"), _figure(schema, "exclusiveMinimum")
    high, below = _figure(schema, "maximum"), _figure(schema, "exclusiveMaximum")
    value: int | float = 0
    if low is not None and low > 0:
        value = -(-low // step) * step
    if above is not None and above >= value:
        value = (above // step + 1) * step
    if high is not None and high < 0:
        value = high // step * step
    if below is not None and below <= value <= 0:
        value = -(-below // step - 1) * step
        value = value if value < below else below - step
    return int(value) if whole or value == int(value) else value


def _figure(schema: Mapping[str, Any], name: str) -> int | float | None:
    value = schema.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) >= 2**53:
        return None
    return value
