"""How much a Claude model may think: the caller's wish and the contract's bound, in both generations' words."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.contracts.capability import Dialect
from tests.providers.anthropic_words import (
    PARAMETERS,
    refused,
    translated,
)

ADAPTIVE, BUDGETED = Dialect.CURRENT, Dialect.BUDGETED_THINKING


def adaptive(effort: str) -> dict[str, Any]:
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}


def budgeted(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


OFF = {"thinking": {"type": "disabled"}}
THINKING: list[tuple[Dialect, dict[str, Any], int | None, dict[str, Any]]] = [
    (ADAPTIVE, {}, None, {}),
    (ADAPTIVE, {"reasoning_effort": "none"}, 9_000, OFF),
    (ADAPTIVE, {"reasoning_effort": "minimal"}, None, adaptive("low")),
    (ADAPTIVE, {"reasoning_effort": "xhigh"}, None, adaptive("xhigh")),
    (ADAPTIVE, {"reasoning_effort": "high"}, 9_000, adaptive("medium")),
    (ADAPTIVE, {}, 20_000, adaptive("high")),
    (ADAPTIVE, {}, 100, OFF),
    (ADAPTIVE, {"thinking": {"type": "adaptive"}}, 9_000, adaptive("medium")),
    (ADAPTIVE, {"thinking": {"type": "adaptive"}}, None, {"thinking": {"type": "adaptive"}}),
    (BUDGETED, {}, None, {}),
    (BUDGETED, {}, 5_000, budgeted(5_000)),
    (BUDGETED, {}, 500, {}),
    (BUDGETED, {}, 50_000, budgeted(39_999)),
    (BUDGETED, {"reasoning_effort": "low"}, None, budgeted(2_048)),
    (BUDGETED, {"reasoning_effort": "high"}, 5_000, budgeted(5_000)),
    (BUDGETED, budgeted(9_000), 5_000, budgeted(5_000)),
    (BUDGETED, budgeted(3_000), None, budgeted(3_000)),
]


@pytest.mark.parametrize(("dialect", "fields", "budget", "sent"), THINKING, ids=range(len(THINKING)))
def test_how_much_it_may_think(dialect: Dialect, fields: dict[str, Any], budget: int | None, sent: dict[str, Any]):
    body = translated(dialect, output_tokens_max=40_000, reasoning_budget_tokens=budget, **fields)
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == sent


def test_an_effort_that_does_not_fit_is_refused():
    assert refused(BUDGETED, output_tokens_max=1_024, reasoning_effort="high").fields == ("reasoning_effort",)
    assert refused(ADAPTIVE, reasoning_budget_tokens=100, reasoning_effort="low").fields == ("reasoning_effort",)


def test_effort_and_schema_share_the_output_settings():
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}}
    body = translated(response_format=form, reasoning_effort="low")
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": PARAMETERS}, "effort": "low"}


OWN_EFFORTS: list[tuple[Dialect, dict[str, Any], int | None, dict[str, Any]]] = [
    (ADAPTIVE, {"output_config": {"effort": "max"}}, None, {"output_config": {"effort": "max"}}),
    (ADAPTIVE, {"output_config": {"effort": "max"}}, 9_000, adaptive("medium")),
    (ADAPTIVE, {"output_config": {"effort": "low"}}, 9_000, adaptive("low")),
    (
        ADAPTIVE,
        {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"}},
        9_000,
        {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "medium"}},
    ),
    (
        ADAPTIVE,
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        None,
        adaptive("high"),
    ),
    (
        ADAPTIVE,
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
        9_000,
        OFF | {"output_config": {"effort": "high"}},
    ),
    (ADAPTIVE, {"thinking": {"type": "between_tools"}}, 9_000, {"thinking": {"type": "between_tools"}}),
    (BUDGETED, {"output_config": {"effort": "high"}}, None, {"output_config": {"effort": "high"}}),
    (BUDGETED, {"output_config": {"effort": "high"}}, 9_000, budgeted(9_000)),
]


@pytest.mark.parametrize(("dialect", "asked", "budget", "sent"), OWN_EFFORTS)
def test_an_effort_in_anthropics_own_form(
    dialect: Dialect, asked: dict[str, Any], budget: int | None, sent: dict[str, Any]
) -> None:
    body = translated(dialect, reasoning_budget_tokens=budget, output_tokens_max=100_000, **asked)
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == sent
