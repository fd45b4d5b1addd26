"""JSON Schemas that a contract's author writes for answers.

1. A reference stays inside its schema; nothing is ever fetched.
2. Patterns are of the linear engine's kind: no answer of a model can make one run long.
3. The draft is the one that `$schema` names, 2020-12 when it names none.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs
from jsonschema_rs import RegexOptions

SCHEMA_NODES_MAX = 10_000
"""Far above a schema that a model can follow; bounds the work of compiling it."""

Validator = jsonschema_rs.Validator

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaInvalid(ValueError):
    """The schema cannot be used; the text says why."""


def compile_schema(schema: dict[str, Any]) -> Validator:
    """A validator of plain JSON values. Raises SchemaInvalid."""
    _refuse_outside_references(schema)
    try:
        kind = jsonschema_rs.validator_cls_for(schema)
        return kind(schema, offline=True, pattern_options=RegexOptions())
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise SchemaInvalid(f"is not a valid JSON Schema: {_one_line(str(error))}") from None
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise SchemaInvalid(f"cannot be used as a JSON Schema ({type(error).__name__})") from None


def _refuse_outside_references(schema: dict[str, Any]) -> None:
    left: list[Any] = [schema]
    seen = 0
    while left:
        node = left.pop()
        seen += 1
        if seen > SCHEMA_NODES_MAX:
            raise SchemaInvalid(f"has more than {SCHEMA_NODES_MAX} parts")
        if isinstance(node, dict):
            for keyword in _REFERENCES:
                target = node.get(keyword)
                if isinstance(target, str) and not target.startswith("#"):
                    raise SchemaInvalid(f"a {keyword} points outside the schema")
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _one_line(text: str) -> str:
    return text.partition("\n")[0][:200]
