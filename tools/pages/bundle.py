"""The bundle's published JSON Schema, and the page that explains each of its fields; both from the structs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from terraflow.contracts.document import BundleDocument

INTRODUCTION = """# Bundles

<!-- Generated from terraflow/contracts by `make fix`. -->

A bundle says everything that a plane enforces. It is written in YAML, checked and signed with
`terraflow bundle sign SRC.yaml --key KEY.pem`, and put in force with `terraflow bundle activate FILE --data DIR`.
Its JSON Schema is [bundle.schema.json](bundle.schema.json); an editor that reads the line
`# yaml-language-server: $schema=…` completes and checks fields with it.

What is signed is the same document as canonical JSON (RFC 8785) in a DSSE envelope. Unknown fields, doubled keys,
anchors and tags are refused. Dates are RFC 3339 with a zone; amounts of money are text, such as `"0.15"`; no number
has a fraction.

A field without a default must be given. Every field that decides about a route is of that kind, so that what was
forgotten can never permit.
"""


def schema() -> str:
    """The JSON Schema of a source and of a payload, 2020-12."""
    made = _schema()
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join(_lines()) + "\n"


def _schema() -> dict[str, Any]:
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "TerraFlow bundle",
        **msgspec.json.schema(BundleDocument),
    }
    _use_the_schemas_own_end(made)
    return made


def _use_the_schemas_own_end(node: Any) -> None:
    """Python's patterns end in `\\Z`; those of JSON Schema in `$`, which there means the end and nothing else."""
    if isinstance(node, dict):
        pattern = node.get("pattern")
        if isinstance(pattern, str):
            node["pattern"] = pattern.replace(r"\Z", "$")
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            _use_the_schemas_own_end(part)


def _lines() -> Iterator[str]:
    definitions: dict[str, dict[str, Any]] = _schema()["$defs"]
    yield INTRODUCTION
    yield "## Kinds of text\n\n| kind | pattern |\n| --- | --- |"
    for title, pattern in sorted(dict(_kinds(definitions)).items()):
        yield f"| {title} | `{_cell(pattern)}` |"
    yield ""
    for name, definition in definitions.items():
        yield f"## {name}\n\n{_sentence(definition)}\n"
        if "enum" in definition:
            yield "One of " + ", ".join(f"`{value}`" for value in definition["enum"]) + ".\n"
            continue
        yield "| field | type | default | meaning |"
        yield "| --- | --- | --- | --- |"
        for field, kind in definition["properties"].items():
            given = "required" if field in definition.get("required", ()) else f"`{_default(kind)}`"
            yield f"| `{field}` | {_type(kind)} | {given} | {_cell(kind['description'])} |"
        yield ""


def _kinds(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        if "title" in node and "pattern" in node:
            yield node["title"], node["pattern"]
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _kinds(part)


def _sentence(definition: dict[str, Any]) -> str:
    return " ".join(definition["description"].split())


def _default(kind: dict[str, Any]) -> str:
    return json.dumps(kind.get("default", {}), ensure_ascii=False)


def _type(kind: dict[str, Any]) -> str:
    if "$ref" in kind:
        name = kind["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in kind:
        return " or ".join(_type(arm) for arm in kind["anyOf"])
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {_type(kind['items'])}"
    if kind.get("type") == "object" and isinstance(kind.get("additionalProperties"), dict):
        return f"mapping to {_type(kind['additionalProperties'])}"
    if "title" in kind:
        return str(kind["title"])
    if kind.get("format") == "date-time":
        return "date and time"
    bounds = [f"{sign} {kind[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in kind]
    names = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
    return " ".join([names.get(kind.get("type", ""), "JSON object"), *[b for b in bounds if str(2**53 - 1) not in b]])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
