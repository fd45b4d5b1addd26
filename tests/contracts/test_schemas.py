"""A schema can make no more work than its bound says, and one without a bound is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from terraflow.contracts import schemas
from terraflow.contracts.schema_work import Unbounded, Work, work_of
from terraflow.contracts.schemas import UNITS_MAX, SchemaInvalid, compile_requested, compile_schema
from terraflow.core.strict_json import DEPTH_MAX, depth_of, nodes_at_most
from tests.contracts import samples
from trust.schema_work import ladder, union_tree

Schema = dict[str, Any]

TREE: Schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
    "additionalProperties": False,
}
LINKED: Schema = {
    "$defs": {
        "node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    },
    "$ref": "#/$defs/node",
}
ANY_JSON: Schema = {
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "additionalProperties": {"$ref": "#"}},
    ]
}

REFUSED = {
    "a ladder of alternatives": ladder("anyOf", 32),
    "a ladder of demands": ladder("allOf", 32),
    "a ladder of exact choices": ladder("oneOf", 32),
    "a ladder of conditions": {
        "$defs": {
            "a0": {},
            **{f"a{i}": {k: {"$ref": f"#/$defs/a{i - 1}"} for k in ("if", "then", "not")} for i in range(1, 32)},
        },
        "$ref": "#/$defs/a31",
    },
    "a recursion that branches in every element": {
        "anyOf": [
            {"items": {"$ref": "#"}},
            {"items": {"$ref": "#"}},
            {"items": {"$ref": "#"}},
            {"contains": {"$ref": "#"}},
        ]
    },
    "patterns that all may match": {"patternProperties": {"a" * i: {"$ref": "#"} for i in range(1, 12)}},
    "a circle that goes nowhere": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "a circle through its root": {"allOf": [{"$ref": "#"}]},
    "unevaluated properties": {"properties": {"a": {"unevaluatedProperties": False}}},
    "unevaluated items": {"unevaluatedItems": False},
    "a dynamic reference": {"$dynamicRef": "#a"},
    "a reference to an anchor": {"$defs": {"a": {"$anchor": "a"}}, "$ref": "#a"},
    "an id below the root": {"items": {"$id": "https://example.org/a", "$ref": "#"}},
    "a large repetition": {"pattern": "^[ab]{0,9000}c"},
    "too many patterns": {"properties": {f"p{i}": {"pattern": f"^{i}$"} for i in range(201)}},
    "too many parts": {"enum": list(range(5_001))},
    "too many bytes": {"description": "x" * 140_000},
}


@pytest.mark.parametrize("schema", REFUSED.values(), ids=REFUSED)
def test_a_schema_that_could_make_too_much_work_is_refused(schema: Schema) -> None:
    with pytest.raises(SchemaInvalid):
        compile_schema(schema)


def test_a_contract_with_such_a_schema_is_in_no_bundle() -> None:
    contract = samples.contract(output={"json_schema": ladder("anyOf", 32)})
    with pytest.raises(Exception, match="too much work"):
        samples.bundle(contracts=[contract])


@pytest.mark.parametrize("schema", [TREE, LINKED, ANY_JSON], ids=["tree", "linked", "any JSON"])
def test_a_recursion_that_takes_one_way_is_linear(schema: Schema) -> None:
    work = work_of(schema)
    assert work.units(10_000, 100_000, DEPTH_MAX) == work.units(10_000, 100_000, 8) == 10 * work.units(1_000, 10_000, 8)
    compile_schema(schema)


def test_recursions_accept_what_they_describe() -> None:
    deep: Any = {"name": "leaf"}
    for _ in range(20):
        deep = {"name": "branch", "children": [deep, {"name": "leaf"}]}
    tree, linked, anything = map(compile_schema, (TREE, LINKED, ANY_JSON))
    assert tree.first_fault([json.dumps(deep)]) is None
    assert tree.first_fault([json.dumps(deep | {"children": [{}]})]) == 0
    assert linked.first_fault(['{"next":{"next":null}}', '{"next":{"next":1}}']) == 1
    assert anything.first_fault([json.dumps(deep)]) is None


def test_a_branching_recursion_is_followed_as_deep_as_there_is_room() -> None:
    validator = compile_schema(union_tree(2))

    def sums(depth: int) -> str:
        made: Any = {"kind": "0", "left": 1, "right": 2}
        for level in range(depth):
            made = {"kind": str(level % 2), "left": made, "right": 2}
        return json.dumps(made)

    assert validator.first_fault([sums(6)]) is None
    assert validator.first_fault([sums(6).replace('"0"', '"2"')]) == 0
    assert validator.first_fault([sums(30)]) == 0


def test_the_texts_of_one_answer_share_one_bound() -> None:
    validator = compile_schema({"items": {"multipleOf": 0.01}})
    text = json.dumps([0.25] * 3_000)
    assert validator.first_fault([text]) is None
    assert validator.first_fault([text] * 20) == UNITS_MAX // work_of({"items": {"multipleOf": 0.01}}).units(
        nodes_at_most(text.encode()), len(text), 1
    )


def test_what_is_no_json_satisfies_nothing() -> None:
    validator = compile_schema({})
    assert [validator.first_fault([text]) for text in ("", "{", '{"a":1,"a":2}', "\ud800", "1")] == [0, 0, 0, 0, None]


@pytest.mark.parametrize(
    ("reference", "accepted"),
    [("#/$defs/a~1b", 1), ("#/%24defs/a~1b", 1), ("#/$defs/c~0d", "x"), ("#/anyOf/1", None), ("#/$defs/e%25f", True)],
)
def test_a_pointer_leads_where_the_validator_goes(reference: str, accepted: object) -> None:
    kinds: Schema = {"a/b": {"type": "integer"}, "c~d": {"type": "string"}, "e%f": {"type": "boolean"}}
    schema: Schema = {"$defs": kinds, "anyOf": [{"type": "array"}, {"type": "null"}]}
    inner = {"items": {"$ref": reference}, "not": {"type": "object"}}
    validator = compile_schema(schema | {"anyOf": [inner, {"type": "null"}]})
    assert validator.first_fault([json.dumps([accepted])]) is None
    assert validator.first_fault(["[1.5]"]) == 0


def test_a_schema_of_a_caller_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Schema] = []
    monkeypatch.setattr(schemas, "compile_schema", lambda schema: made.append(schema) or compile_schema(schema))
    schema: Schema = {"title": "seen by no other test", "type": "object"}
    first = compile_requested(schema)
    assert compile_requested(dict(schema)) is first and made == [schema]
    for each in range(schemas.REQUESTED_KEPT):
        compile_requested({"title": f"another {each}"})
    assert compile_requested(schema) is not first and len(made) == 2 + schemas.REQUESTED_KEPT


# The bound against a reading of the schema that counts every visit.


def visits(root: Schema, schema: Any, value: Any, tally: dict[int, int]) -> None:
    """Count a visit of every subschema at every part that it may come to, none cut short; parts are told apart by
    identity, names aside."""
    tally[id(value)] = tally.get(id(value), 0) + 1
    if not isinstance(schema, dict):
        return
    for keyword, inner in schema.items():
        for below in inner if keyword in ("allOf", "anyOf", "oneOf") else [inner] if keyword in ("not", "if") else []:
            visits(root, below, value, tally)
        if keyword == "$ref":
            visits(root, root["$defs"][inner.removeprefix("#/$defs/")], value, tally)
        if isinstance(value, list):
            elements = inner if keyword == "prefixItems" else [inner] * len(value) if keyword == "contains" else []
            if keyword == "items":
                elements = [None] * len(schema.get("prefixItems", [])) + [inner] * len(value)
            for below, element in zip(elements, value, strict=False):
                if below is not None:
                    visits(root, below, element, tally)
        if isinstance(value, dict):
            for name, member in value.items():
                named = keyword == "properties" and name in inner
                rest = keyword == "additionalProperties" and name not in schema.get("properties", {})
                for below in [inner[name]] if named else [inner] if rest else []:
                    visits(root, below, member, tally)
                for below in inner.values() if keyword == "patternProperties" else []:
                    visits(root, below, member, tally)


NAMES = ("a", "b", "c")
_REFERENCE = st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in NAMES])


def _applied(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    some, named = st.lists(inner, min_size=1, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    optional = {
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
        **dict.fromkeys(("not", "if", "items", "contains", "additionalProperties"), inner),
        **dict.fromkeys(("properties", "patternProperties"), named),
    }
    return st.fixed_dictionaries({}, optional=optional)  # type: ignore[arg-type]


SCHEMAS = st.recursive(_REFERENCE | st.booleans() | st.just({"type": "object"}), _applied, max_leaves=6)
ROOTS = st.fixed_dictionaries(
    {"$defs": st.fixed_dictionaries(dict.fromkeys(NAMES, _applied(SCHEMAS)))}  # type: ignore[arg-type]
).flatmap(lambda defs: _applied(SCHEMAS).map(lambda schema: schema | defs))
ANSWERS = st.recursive(
    st.builds(lambda: [None][:0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(ROOTS, ANSWERS)
def test_no_part_is_visited_more_often_than_the_bound_says(schema: Schema, answer: Any) -> None:
    try:
        work = work_of(schema)
    except Unbounded as refused:
        assume("goes" not in str(refused) and "going" not in str(refused))
        raise
    depth = depth_of(answer)
    a_part = work.units(1, 0, depth)
    assume(a_part < 20_000)
    tally: dict[int, int] = {}
    visits(schema, schema, answer, tally)
    assert max(tally.values()) <= a_part


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf"])
def test_the_bound_counts_every_way(keyword: str) -> None:
    for steps in range(1, 12):
        tally: dict[int, int] = {}
        schema, answer = ladder(keyword, steps), [None]
        visits(schema, schema, answer, tally)
        assert 2**steps <= max(tally.values()) <= work_of(schema).units(1, 0, 1)
    assert Work([1], [0]).units(1, 0, 1) < 2
