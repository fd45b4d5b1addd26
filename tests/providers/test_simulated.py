"""The simulated model: what it says without a script, and the smallest instances it makes of schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terraflow.app.runtime import SystemClock
from terraflow.contracts.script import Act, Script, SimulatedToolCall
from terraflow.ports.upstream import Usage
from terraflow.providers.instance import NODES_MAX, smallest_instance
from terraflow.providers.simulated import SimulatedProvider
from tests.providers.sample import call, collect, finishes, text_of, tool_calls_of


def simulated(*acts: Act) -> SimulatedProvider:
    return SimulatedProvider(Script(acts=acts) if acts else None, SystemClock())


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


async def test_unscripted_text_knows_the_size_alone():
    first = await simulated().complete(call(messages=[{"role": "user", "content": "aaaa"}]))
    second = await simulated().complete(call(messages=[{"role": "user", "content": "bbbb"}], temperature=1.0))
    assert first.choices == second.choices
    assert first.choices[0]["message"]["content"] == "This is a simulated answer to a request of 100 bytes."
    assert first.usage == second.usage == Usage(input=25, output=14)


async def test_every_choice_is_given():
    answer = await simulated().complete(call(choices=3))
    chunks = await collect(simulated(), call(choices=3, stream=True))
    assert [c["index"] for c in answer.choices] == [0, 1, 2]
    assert answer.usage.output == 42
    assert sorted(c["index"] for chunk in chunks for c in chunk.choices if c["finish_reason"]) == [0, 1, 2]


async def test_a_schema_gets_its_smallest_instance():
    schema = obj(name={"type": "string"}, tags={"type": "array", "items": {"type": "string"}})
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    asked = {"schema": schema, "response_format": form}
    answer = await simulated().complete(call(**asked))
    assert json.loads(answer.choices[0]["message"]["content"]) == {"name": "", "tags": []}
    assert json.loads(text_of(await collect(simulated(), call(stream=True, **asked)))) == {"name": "", "tags": []}


async def test_a_json_object_is_one():
    answer = await simulated().complete(call(response_format={"type": "json_object"}))
    assert answer.choices[0]["message"]["content"] == "{}"


async def test_an_act_with_a_text_of_its_own_gives_that():
    answer = await simulated(Act(text='{"wrong": 1}')).complete(call(schema=obj(a={"type": "integer"})))
    assert answer.choices[0]["message"]["content"] == '{"wrong": 1}'


TOOLS = [
    {"type": "function", "function": {"name": "first", "parameters": obj(city={"type": "string", "enum": ["Pune"]})}},
    {"type": "function", "function": {"name": "second"}},
]


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        ("required", ("first", '{"city":"Pune"}')),
        ({"type": "function", "function": {"name": "second"}}, ("second", "{}")),
        ("auto", None),
        ("none", None),
    ],
    ids=str,
)
async def test_a_required_tool_is_called(choice: Any, called: tuple[str, str] | None):
    asked = {"tools": TOOLS, "tool_choice": choice}
    message = (await simulated().complete(call(**asked))).choices[0]["message"]
    chunks = await collect(simulated(), call(stream=True, **asked))
    if called is None:
        assert "tool_calls" not in message
        assert finishes(chunks) == ["stop"]
        return
    function = message["tool_calls"][0]["function"]
    assert (function["name"], function["arguments"]) == called
    assert tool_calls_of(chunks)[0] == {"id": "call_0", "name": called[0], "arguments": called[1]}
    assert finishes(chunks) == ["tool_calls"]


async def test_scripted_calls_go_before_required_ones():
    act = Act(tool_calls=(SimulatedToolCall(name="other"),))
    message = (await simulated(act).complete(call(tools=TOOLS, tool_choice="required"))).choices[0]["message"]
    assert [c["function"]["name"] for c in message["tool_calls"]] == ["other"]


async def test_usage_that_is_not_reported():
    provider = simulated(Act(text="hi", usage_reported=False))
    assert (await provider.complete(call())).usage == Usage(input=25, output=1, estimated=True)
    assert all(chunk.usage is None for chunk in await collect(provider, call(stream=True)))


async def test_text_of_several_bytes_a_letter_is_never_cut_inside_one():
    answer = await simulated(Act(text="éééé")).complete(call(output_tokens_max=1))
    assert answer.choices[0]["message"]["content"] == "éé"
    odd = await simulated(Act(text="xééé")).complete(call(output_tokens_max=1))
    assert odd.choices[0]["message"]["content"] == "xé"


SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 5},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "uuid"},
    {"type": ["string", "null"]},
    {"type": "integer", "minimum": 3},
    {"type": "integer", "exclusiveMinimum": 3},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "exclusiveMaximum": 0},
    {"type": "integer", "minimum": 3, "multipleOf": 7},
    {"type": "number", "exclusiveMinimum": 0.5},
    {"type": "number", "minimum": 0.5},
    {"type": "number", "maximum": -0.5},
    {"type": "boolean"},
    {"type": "null"},
    {"enum": ["a", "b"]},
    {"const": {"x": 1}},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "minItems": 2},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    {"oneOf": [{"type": "string"}, {"type": "null"}]},
    {"allOf": [obj(a={"type": "string"}) | {"additionalProperties": True},
               {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
    obj(a={"type": "string"}, b={"type": "number"}, c=obj(d={"type": "array", "items": {}, "minItems": 1})),
    {"type": "object", "properties": {"optional": {"type": "string"}}},
    {"properties": {"a": {"type": "integer", "minimum": 2}}, "required": ["a"]},
    {"$defs": {"leaf": obj(n={"type": "integer"})}, **obj(a={"$ref": "#/$defs/leaf"}, b={"$ref": "#/$defs/leaf"})},
    {"$defs": {"tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                        "required": ["kids"]}}, "$ref": "#/$defs/tree"},
    {"$defs": {"a/b": {"type": "integer"}}, "$ref": "#/$defs/a~1b"},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: str(s)[:70])
def test_the_smallest_instance_satisfies_a_plain_schema(schema: dict[str, Any]):
    jsonschema_rs.validate(schema, smallest_instance(schema))


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(_size(v) for v in value.values())
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/nowhere"},
        {"$ref": 7},
        {"type": "array", "minItems": 10**12},
        {"type": "array", "minItems": 10**6, "items": {"type": "array", "minItems": 10**6}},
        {"type": "string", "minLength": 10**12},
        obj(a={"$ref": "#"}, b={"$ref": "#"}, c={"$ref": "#"}),
        {"type": "object", "required": [str(i) for i in range(100_000)]},
        {"type": 7, "properties": 1, "required": 2},
        {"type": ["null"]},
        {"type": "number", "minimum": 1e300, "multipleOf": 1e-300},
        {"anyOf": [{"anyOf": [{"$ref": "#"}]}]},
    ],
    ids=lambda s: str(s)[:60],
)
def test_no_schema_makes_it_large_or_breaks_it(schema: dict[str, Any]):
    made = smallest_instance(schema)
    assert _size(made) <= 2 * NODES_MAX
    assert len(json.dumps(made)) < 100_000


_WORDS = st.sampled_from(
    ["type", "object", "array", "string", "integer", "number", "properties", "required", "items", "minItems", "anyOf",
     "allOf", "$ref", "#", "#/a", "enum", "const", "minLength", "minimum", "maximum", "multipleOf", "exclusiveMaximum"]
)  # fmt: skip
_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=20,
)


@given(_ANY)
def test_no_value_in_place_of_a_schema_breaks_it(schema: Any):
    assert _size(smallest_instance(schema)) <= 2 * NODES_MAX + 100
