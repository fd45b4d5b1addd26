"""What a step of the pipeline may return: a value of this module and nothing else.

1. A step that decides against the request returns `Refuse`; it never raises to refuse.
2. A step that returns anything but these types (None among them) is a fault, and a fault never lets a request pass.
"""

from __future__ import annotations

from typing import Any

import msgspec

from terraflow.core.reasons import Governed, ModelApi


class Continue(msgspec.Struct, frozen=True):
    """The request goes on to the next step."""


CONTINUE = Continue()


class Problem(msgspec.Struct, frozen=True):
    """Where in a body or head something is wrong, and the rule it breaks. Never the caller's value."""

    field: str
    rule: str


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """The request ends here with exactly one code.

    `detail` is a short word from a closed vocabulary, `details` facts of ours (never of the caller's content);
    `retry_after_s` is sent as `Retry-After`; `hint` is told instead of the code's own next step, and is a constant
    text.
    """

    reason: Governed | ModelApi
    detail: str = ""
    details: dict[str, Any] = {}
    retry_after_s: int | None = None
    problems: tuple[Problem, ...] = ()
    hint: str = ""


def invalid_request(field: str, rule: str) -> Refuse:
    """INVALID_REQUEST with one problem; both texts are ours."""
    return Refuse(reason=ModelApi.INVALID_REQUEST, problems=(Problem(field=field, rule=rule),))


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier outcome of the same idempotency key is sent again; nothing runs and nothing is charged."""

    request_id: str
    status: int
    reason: str
    answer: bytes | None


class Deliver(msgspec.Struct, frozen=True):
    """There is an answer without calling a model; the steps up to the check of the answer are passed over."""


StepOutcome = Continue | Refuse | Replay | Deliver
