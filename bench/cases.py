"""What the bench asks, as data: the same body goes to the mock, to the plane and to LiteLLM.

1. A case is told apart by the model's name alone: the mock reads its behaviour from it (`bench.mock_upstream`),
   the plane finds a workload or a capability of that name (`bench/bench.yaml`), LiteLLM a route.
2. The conversation is of an ordinary size, and holds what a scanner must look at twice: numbers, an address, a
   date.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

STREAM_CHUNKS = 100

_SYSTEM = (
    "You answer questions about a supplier's invoices for the accounts team of a mid-sized company. Answer in one "
    "short paragraph, name the invoices that you rely on, and say so when the list does not hold the answer."
)
_QUESTION = (
    "Invoices: A-20417 of 3 March over 1,284.50 EUR, due 2 April, paid 28 March; A-20533 of 19 March over 96.00 "
    "EUR, due 18 April, paid 7 April; A-20719 of 30 March over 12,040.00 EUR, due 29 April, paid 29 April. "
    "Supplier no. 700-4151, Example Street 12, 10115 Berlin. Was any of them paid late, and which was the oldest?"
)


_ASKED = {"role": "user", "content": _QUESTION}
_CONVERSATION = [{"role": "system", "content": _SYSTEM}, _ASKED]


@dataclass(frozen=True)
class Case:
    """One kind of request. `chunks` 0 means not streamed; `expect` is the status that counts as good; `path` stands
    behind `/v1`, and says in which shape the same conversation is asked."""

    name: str
    model: str
    chunks: int = 0
    expect: int = 200
    path: str = "/chat/completions"

    @property
    def body(self) -> str:
        """The request's JSON."""
        return json.dumps(_SHAPES[self.path](self.model) | ({"stream": True} if self.chunks else {}))


_SHAPES: dict[str, Callable[[str], dict[str, object]]] = {
    "/chat/completions": lambda model: {"model": model, "messages": _CONVERSATION, "max_tokens": 256},
    "/messages": lambda model: {"model": model, "system": _SYSTEM, "messages": [_ASKED], "max_tokens": 256},
    "/invocations": lambda model: {"workload": model, "messages": _CONVERSATION, "max_output_tokens": 256},
}


PLAIN = Case("governed request", "bench")
MESSAGES = Case("the same on /v1/messages", "bench", path="/messages")
INVOCATIONS = Case("the same on /v1/invocations", "bench", path="/invocations")
REFUSAL = Case("refusal by policy", "bench-refused", expect=403)
PACED = Case("stream, a chunk every 2 ms", f"mock-stream-{STREAM_CHUNKS}-interval-2", chunks=STREAM_CHUNKS)
BURST = Case("stream, as fast as it goes", f"mock-stream-{STREAM_CHUNKS}", chunks=STREAM_CHUNKS)
ENDLESS = Case("stream that the client leaves", "mock-stream-10000-interval-5", chunks=10_000)

CASES = (PLAIN, MESSAGES, INVOCATIONS, REFUSAL, PACED, BURST, ENDLESS)
ROUTED = tuple(dict.fromkeys(case.model for case in CASES if case is not REFUSAL))
"""The models that a proxy must pass on to the mock."""
