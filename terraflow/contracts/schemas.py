"""JSON Schemas for answers: a contract's author writes them, and callers do where a contract lets them.

1. A reference stays inside its schema; nothing is ever fetched.
2. Patterns are of the linear engine's kind, and small once compiled: no answer of a model can make one run long.
3. What validation can cost is known before it begins (`schema_work`). A schema under which an ordinary answer could
   cost too much is refused, when a bundle is checked or a request arrives; an answer that is larger or deeper than its
   schema leaves room for is not validated, and so does not satisfy it.
4. The draft is the one that `$schema` names, 2020-12 when it names none.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import msgspec
from jsonschema_rs import RegexOptions

from terraflow.contracts.schema_work import PATTERN_BYTES_MAX, Unbounded, Work, work_of
from terraflow.core.strict_json import DEPTH_MAX, BadJson, depth_of, nodes_at_most, parse_json

SCHEMA_NODES_MAX = 5_000
SCHEMA_BYTES_MAX = 128 * 1024
"""Both far above a schema that a model can follow; they bound the work of compiling it."""

UNITS_MAX = 10_000_000
"""What validating the texts of one answer may cost, some 100 ms: health answers within 250."""
_ORDINARY_PARTS, _ORDINARY_BYTES, _ORDINARY_DEPTH = 1_000, 10_000, 8
"""The answer that every accepted schema has room for."""

REQUESTED_KEPT = 64
"""Schemas of callers that are kept compiled: an application asks for a few, again and again."""

_PATTERNS = RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=256 * 1024)


class SchemaInvalid(ValueError):
    """The schema cannot be used; the text says why."""


class Validator:
    """A compiled schema; made by `compile_schema`."""

    def __init__(self, compiled: jsonschema_rs.Validator, work: Work) -> None:
        self._compiled, self._work = compiled, work

    def first_fault(self, texts: Sequence[str]) -> int | None:
        """Which of the texts is the first that is not JSON satisfying the schema; None when all are. What all of them
        together may cost is bounded."""
        units_left = UNITS_MAX
        for at, text in enumerate(texts):
            try:
                raw = text.encode()
                value = parse_json(raw)
            except (BadJson, UnicodeEncodeError):
                return at
            parts = nodes_at_most(raw)
            units = self._work.units(parts, len(raw), DEPTH_MAX)
            if units > units_left:
                units = self._work.units(parts, len(raw), depth_of(value))
            units_left -= units
            if units_left < 0 or not self._compiled.is_valid(value):
                return at
        return None


def compile_schema(schema: dict[str, Any]) -> Validator:
    """A validator of texts. Raises SchemaInvalid."""
    try:
        if len(msgspec.json.encode(schema)) > SCHEMA_BYTES_MAX:
            raise SchemaInvalid(f"is longer than {SCHEMA_BYTES_MAX} bytes of JSON")
        _count(schema)
        work = work_of(schema)
        if work.units(_ORDINARY_PARTS, _ORDINARY_BYTES, _ORDINARY_DEPTH) > UNITS_MAX:
            raise SchemaInvalid("can make too much work: its branches lead to the same parts again and again")
        kind = jsonschema_rs.validator_cls_for(schema)
        return Validator(kind(schema, offline=True, pattern_options=_PATTERNS), work)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise SchemaInvalid(f"is not a valid JSON Schema: {_one_line(str(error))}") from None
    except Unbounded as error:
        raise SchemaInvalid(f"cannot be used: it {error}") from None
    except SchemaInvalid:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise SchemaInvalid(f"cannot be used as a JSON Schema ({type(error).__name__})") from None


def compile_requested(schema: dict[str, Any]) -> Validator:
    """`compile_schema` for a schema that a request carries: the last ones are kept. Raises SchemaInvalid."""
    return _requested(msgspec.json.encode(schema))


@functools.lru_cache(maxsize=REQUESTED_KEPT)
def _requested(encoded: bytes) -> Validator:
    return compile_schema(msgspec.json.decode(encoded))


def _count(schema: dict[str, Any]) -> None:
    left: list[Any] = [schema]
    seen = 0
    while left:
        node = left.pop()
        seen += 1
        if seen > SCHEMA_NODES_MAX:
            raise SchemaInvalid(f"has more than {SCHEMA_NODES_MAX} parts")
        if isinstance(node, dict):
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _one_line(text: str) -> str:
    return text.partition("\n")[0][:200]
