"""A fleet: several replicas of one model, behind one capability.

1. Policy decides on the capability as a whole. A replica has no terms of its own, only a place and a switch.
2. Which replica takes a call is a matter of caches and load; a hint may say, and none is ever needed.
3. A replica that is switched off, resting or outside the boundary is not used, whatever a hint says.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from terraflow.contracts.words import Id, ModelName, Positive, says

REPLICAS_MAX = 256
"""Replicas of one fleet: what a choice looks at, once a call."""

ReplicaId = Annotated[str, Meta(title="replica id", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\Z")]
SchemeName = Annotated[str, Meta(title="hash scheme", pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}\Z")]
Label = Annotated[str, Meta(title="label", pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")]
Percent = Annotated[int, Meta(ge=1, le=100)]

BLOCK_TOKENS = 16
"""vLLM's block, and the contract's where nothing else is said."""


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One engine of a fleet."""

    id: Annotated[ReplicaId, says("Its name in the hint service and in evidence, unique in the fleet.")]
    endpoint: Annotated[str, says("Its base URL; checked like a capability's own.")]
    enabled: Annotated[bool, says("Whether it may be used.")] = True
    labels: Annotated[
        dict[Label, Label], says("What it registers with at the hint service inside the plane, for topologies.")
    ] = {}
    events: Annotated[
        str | None,
        says('Where it publishes its cache\'s events, `tcp://HOST:PORT`; read with `hints = "inside"`.'),
    ] = None
    replay: Annotated[str | None, says("Where it replays them, `tcp://HOST:PORT`.")] = None
    metrics: Annotated[str | None, says("The URL of its metrics, from which its pressure is read.")] = None


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The replicas, and how their caches are spoken of."""

    replicas: Annotated[
        Annotated[tuple[Replica, ...], Meta(min_length=1, max_length=REPLICAS_MAX)], says("The engines.")
    ]
    tokenizer: Annotated[
        Id | None,
        says(
            "The tokenizer, by its name in the settings, that turns prompts into the engines' own blocks."
            " Null: prompts are known by blocks of their text, which the plane reports itself."
        ),
    ] = None
    scheme: Annotated[
        SchemeName | None, says("The hash scheme that the engines' blocks are reported under; goes with `tokenizer`.")
    ] = None
    block_tokens: Annotated[Positive, says("Tokens a block, as the engines are configured.")] = BLOCK_TOKENS
    hint_tenant: Annotated[Id, says("The tenant under which the hint service knows the engines.")] = "fleet"
    hint_model: Annotated[
        ModelName | None, says("The model under which it knows them; null is the capability's `model`.")
    ] = None
    adapter: Annotated[
        Annotated[str, Meta(max_length=128)], says("The LoRA adapter that `model` names, as the engines report it.")
    ] = ""
    pressure_max_percent: Annotated[
        Percent | None,
        says(
            "When every healthy replica's pressure is above this, the fleet's capacity counts as exhausted;"
            " null never asks."
        ),
    ] = None
