"""What the tests of the vendors' own clients share: what is asked, what the plane behind it may do, and how often the
client really asked."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from tests.harness.bundle import Json, Purpose, limit, purpose, sim
from tests.harness.caller import CANARY

PARAMETERS: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASKED: Any = [{"role": "user", "content": f"Hello {CANARY}"}]
POOR = [limit("workload", "poor", "hour", "0.000001")]
"""The budgets of `scripted`."""


def scripted() -> list[Purpose]:
    """Workloads that need no vendor, one for each thing that may happen to a request."""
    down: Json = {"fail": "authentication"}
    schema: Json = {"requested_schema": True}
    return [
        purpose("calls", sim("caller"), tools=["weather"]),
        purpose("extract", sim("extracts"), output=schema),
        purpose("garbles", sim("cannot", {"text": "no JSON"}), output=schema),
        purpose("once", sim("one"), requests_per_minute=1),
        purpose("poor", sim("two")),
        purpose("down", sim("fails", down, down, {})),
        purpose("filtered", sim("filters", {"fail": "content_filtered"})),
        purpose("keyed", sim("three"), require_idempotency=True),
    ]


def weather_call(number: int, city: str) -> Json:
    """A call of the function `weather`, as a model of OpenAI's makes it."""
    function = {"name": "weather", "arguments": json.dumps({"city": city})}
    return {"id": f"call_{number}", "type": "function", "function": function}


class Total(BaseModel):
    """What a caller wants an answer to be."""

    total: int
    items: list[str]


class Wire:
    """How often the client really asked."""

    def __init__(self) -> None:
        self.requests = 0

    def sent(self, _: Any) -> None:
        """For the client's own hook."""
        self.requests += 1
