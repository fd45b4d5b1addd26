"""How much a Claude model may think: the caller's wish and the contract's bound, as two generations of models take
them.

| asked | adaptive models (4.6 and later) | budgeted models (4.5 and earlier) |
| --- | --- | --- |
| nothing, no budget | nothing is sent | nothing is sent |
| effort `none` | `disabled` | `disabled` |
| an effort | `adaptive`, that effort | `enabled`, the effort's budget, at most the contract's |
| a contract's budget alone | `adaptive`, the most effort that usually keeps to it | `enabled`, that budget |

1. An adaptive model takes no number: its hard bound is the output limit, which counts its thinking too, and the
   effort is lowered to one whose usual budget keeps to the contract's.
2. A budget is at least 1 024 tokens and below the output limit (the API's own rule). Where that leaves no room, a
   contract's budget alone means no thinking; an effort that was asked for is refused as UNSUPPORTED_FIELD.
3. A `thinking` object in Anthropic's own form is taken as it is, its budget lowered to the contract's; OpenAI's effort
   beside it is refused.
4. An effort in Anthropic's own form (`output_config`) is taken as it is, where the contract has a budget lowered to one
   that keeps to it.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from terraflow.contracts.capability import Dialect
from terraflow.core.chat_fields import UNKNOWN_FIELD
from terraflow.ports.upstream import Call
from terraflow.providers.failures import unsupported

BUDGET_TOKENS_MIN = 1024


class Effort(NamedTuple):
    """One effort: OpenAI's word, Anthropic's word, and the budget it stands for."""

    asked: str
    sent: str
    budget_tokens: int


# fmt: off
EFFORTS = (
    Effort("minimal", "low",     1_024),
    Effort("low",     "low",     2_048),
    Effort("medium",  "medium",  8_192),
    Effort("high",    "high",   16_384),
    Effort("xhigh",   "xhigh",  32_768),
    Effort("max",     "max",    65_536),
)
# fmt: on
_BY_NAME = {effort.asked: effort for effort in EFFORTS}
_KINDS = frozenset({"enabled", "adaptive", "disabled", "between_tools"})
"""`between_tools` is thinking that is off, of models that tell of their progress in its place."""
_OWN_EFFORTS = frozenset(effort.sent for effort in EFFORTS)


class Thinking:
    """The rule of one generation."""

    __slots__ = ("_adaptive",)

    def __init__(self, dialect: Dialect) -> None:
        self._adaptive = dialect is Dialect.CURRENT

    def apply(self, body: dict[str, Any], document: dict[str, Any], call: Call) -> None:
        """Put `thinking`, and perhaps an effort, into a body. Raises ProviderFailure."""
        budget, asked = call.reasoning_budget_tokens, document.get("reasoning_effort")
        own, effort = document.get("thinking"), _own_effort(document.get("output_config"))
        if own is not None or effort is not None:
            if asked is not None:
                raise unsupported("reasoning_effort")
            self._take_own(body, own, effort, call)
            return
        if asked == "none":
            body["thinking"] = {"type": "disabled"}
            return
        if asked is None and budget is None:
            return
        if asked is not None and asked not in _BY_NAME:
            raise unsupported("reasoning_effort")
        limit = sys.maxsize if budget is None else budget
        if self._adaptive:
            self._adapt(body, asked, limit)
        else:
            self._budget(body, asked, min(limit, call.output_tokens_max - 1))

    def _take_own(self, body: dict[str, Any], own: Any, effort: str | None, call: Call) -> None:
        budget = call.reasoning_budget_tokens
        adaptive = own is None or (isinstance(own, dict) and own.get("type") == "adaptive")
        if own is not None:
            body["thinking"] = _own_form(own, budget)
        if budget is not None and own is None and not self._adaptive:
            self._budget(body, effort, min(budget, call.output_tokens_max - 1))
        elif budget is not None and adaptive:
            self._adapt(body, effort, budget)
            if own is not None and body["thinking"]["type"] == "adaptive":
                body["thinking"] = dict(own)
        elif effort is not None:
            body.setdefault("output_config", {})["effort"] = effort

    @staticmethod
    def _adapt(body: dict[str, Any], asked: str | None, limit: int) -> None:
        """The effort that was asked for, or the greatest, lowered to one that keeps to the limit."""
        wished = EFFORTS if asked is None else EFFORTS[: EFFORTS.index(_BY_NAME[asked]) + 1]
        effort = next((e for e in reversed(wished) if e.budget_tokens <= limit), None)
        if effort is not None:
            body["thinking"] = {"type": "adaptive"}
            body.setdefault("output_config", {})["effort"] = effort.sent
        elif asked is None:
            body["thinking"] = {"type": "disabled"}
        else:
            raise unsupported("reasoning_effort")

    @staticmethod
    def _budget(body: dict[str, Any], asked: str | None, limit: int) -> None:
        tokens = limit if asked is None else min(limit, _BY_NAME[asked].budget_tokens)
        if tokens >= BUDGET_TOKENS_MIN:
            body["thinking"] = {"type": "enabled", "budget_tokens": tokens}
        elif asked is not None:
            raise unsupported("reasoning_effort")


def _own_effort(config: Any) -> str | None:
    if config is None:
        return None
    effort = config.get("effort") if isinstance(config, dict) and len(config) == 1 else None
    if effort not in _OWN_EFFORTS:
        raise unsupported(UNKNOWN_FIELD)
    return str(effort)


def _own_form(own: Any, budget: int | None) -> dict[str, Any]:
    kind = own.get("type") if isinstance(own, dict) else None
    asked = own.get("budget_tokens", 0) if isinstance(own, dict) else None
    if kind not in _KINDS or type(asked) is not int:
        raise unsupported(UNKNOWN_FIELD)
    if kind == "enabled" and budget is not None and asked > budget:
        return {**own, "budget_tokens": budget}
    return dict(own)
