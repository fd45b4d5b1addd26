"""The published schema and page say of a bundle what the code says of it."""

from __future__ import annotations

import copy
import importlib.resources
import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from ruamel.yaml import YAML

from terraflow.contracts.decode import BundleRejected, decode_document
from terraflow.contracts.words import ClassTrigger, DataClassLabel
from terraflow.contracts.workload import CLASS_DEFAULTS
from terraflow.core.types import DATA_CLASSES, SENSITIVE_TYPES
from tests.contracts.samples import document
from tools.pages import bundle

SCHEMA = json.loads(bundle.schema())
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA, validate_formats=True, offline=True)


def test_the_samples_and_the_starter_are_valid_by_the_published_schema() -> None:
    assert VALIDATOR.is_valid(document())
    raw = importlib.resources.files("terraflow.app").joinpath("starter.yaml").read_bytes()
    starter = json.loads(msgspec.json.encode(YAML(typ="safe", pure=True).load(raw)))
    assert [str(error) for error in VALIDATOR.iter_errors(starter)] == []


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        (None, "schema", 2),
        (None, "stray", 1),
        ("contracts", "data_classes", ["secret"]),
        ("contracts", "effective_from", "yesterday"),
        ("contracts", "egress", "sometimes"),
        ("capabilities", "id", "Alpha"),
        ("capabilities", "id", "alpha\n"),
        ("capabilities", "secret", "sk-live"),
        ("capabilities", "context_window_tokens", 0),
        ("workloads", "priority", 4),
    ],
)
def test_schema_and_code_refuse_the_same(place: str | None, field: str, value: Any) -> None:
    broken = copy.deepcopy(document())
    target = broken if place is None else broken[place][0]
    target[field] = value
    assert not VALIDATOR.is_valid(broken)
    with pytest.raises(BundleRejected):
        decode_document(broken)


@pytest.mark.parametrize("place", ["tenants", "applications", "workloads", "contracts", "capabilities"])
def test_schema_and_code_require_the_same_fields(place: str) -> None:
    for field in document()[place][0]:
        broken = copy.deepcopy(document())
        del broken[place][0][field]
        try:
            decode_document(broken)
            decoded = True
        except BundleRejected:
            decoded = False
        assert VALIDATOR.is_valid(broken) is decoded, (place, field)


def test_every_field_has_a_meaning() -> None:
    for name, definition in SCHEMA["$defs"].items():
        assert definition.get("description"), name
        for field, kind in definition.get("properties", {}).items():
            assert len(kind.get("description", "").split()) >= 2, f"{name}.{field}"


def test_the_labels_are_those_of_the_domain() -> None:
    assert set(DataClassLabel.__args__) == set(DATA_CLASSES)  # type: ignore[attr-defined]
    assert set(ClassTrigger.__args__) == {"undeclared", *SENSITIVE_TYPES} == set(CLASS_DEFAULTS)  # type: ignore[attr-defined]
