"""JSON from strangers, parsed so that no two readers can understand it differently.

1. Refused: anything but UTF-8, duplicate keys, NaN and the infinities (1e400 too), integers that do not fit in 64
   bits, lone surrogates, nesting deeper than `depth_max`, a byte order mark, and more than `nodes_max` values and
   names.
2. An error names the rule, never the input.
3. The cost is linear; the checks for rare faults run only when the bytes show a sign of them. A value or a name costs
   a hundred times what a byte of a long string does: they are counted in the bytes, before any is made.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from typing import Any

DEPTH_MAX = 64
NODES_MAX = 100_000
"""Parsed in some 20 ms."""

# A string that nothing closes goes to the end, so that no byte is looked at twice.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


class BadJson(ValueError):
    """The bytes are not JSON as this module accepts it; `rule` says what was broken."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def parse_json(raw: bytes, *, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX) -> Any:
    """The value `raw` stands for, made of dict, list, str, int, float, bool and None. Raises BadJson."""
    if len(raw) > nodes_max and nodes_at_most(raw) > nodes_max and not _few_outside_strings(raw, nodes_max):
        raise BadJson(f"must not hold more than {nodes_max} values and names")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadJson("must be UTF-8") from None
    try:
        value = _DECODER.decode(text)
    except BadJson:
        raise
    except RecursionError:
        raise BadJson(f"must not be nested deeper than {depth_max}") from None
    except ValueError:
        marked = raw.startswith(codecs.BOM_UTF8)
        raise BadJson("must not begin with a byte order mark" if marked else "must be valid JSON") from None
    # A document with no more brackets than the bound cannot be deeper than it.
    if raw.count(b"[") + raw.count(b"{") > depth_max and depth_of(value) > depth_max:
        raise BadJson(f"must not be nested deeper than {depth_max}")
    if b"\\u" in raw and _SURROGATE_ESCAPE.search(raw) is not None:
        _refuse_lone_surrogates(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise BadJson("must not repeat a key")
    return made


def _integer(digits: str) -> int:
    number = int(digits)
    if not -(1 << 63) <= number < 1 << 63:
        raise BadJson("must not hold an integer beyond 64 bits")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise BadJson("must not hold a number beyond the range of a double")
    return number


def _constant(_: str) -> float:
    raise BadJson("must not hold NaN or an infinity")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)


def nodes_at_most(raw: bytes) -> int:
    """At least as many as the values and names that `raw` holds, if it is JSON: each but one follows one of four bytes,
    which may stand in strings as well."""
    return 1 + raw.count(b",") + raw.count(b":") + raw.count(b"[") + raw.count(b"{")


def _few_outside_strings(raw: bytes, nodes_max: int) -> bool:
    """Whether it holds at most `nodes_max`, counted without what stands in strings, if there are few of these."""
    quotes = raw.count(b'"') - raw.count(b'\\"')
    return quotes <= 2 * nodes_max and nodes_at_most(_STRING.sub(b"", raw)) <= nodes_max


def depth_of(value: Any) -> int:
    """How many lists and objects stand in one another at the deepest place."""
    deepest, level = 0, [value]
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            else:
                continue
            below.append(None)
        deepest, level = deepest + bool(below), below
    return deepest


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise BadJson("must not hold a lone surrogate") from None
