"""What the message of a governed refusal says beyond the registry's words: the detail, and of the details what a caller
acts on.

1. It repeats what stands in the body's `terraflow` object, because some clients show their users the message alone.
2. So nothing is there that is not there: no word of the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SHOWN_MAX = 3
"""Capabilities that are told of by name; the body has all."""


def particulars(detail: str, details: dict[str, Any]) -> str:
    """A sentence to stand behind the message, with a space before it; empty where there is nothing to tell."""
    said = "; ".join(told(details[name]) for name, told in _TOLD.items() if details.get(name))
    here = ": ".join(part for part in (detail, said) if part)
    return f" Here: {here}." if here else ""


def _excluded(capabilities: dict[str, Any]) -> str:
    shown = [_against(name, why) for name, why in list(capabilities.items())[:SHOWN_MAX]]
    more = len(capabilities) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _against(name: str, why: dict[str, Any]) -> str:
    return f"{name} {why['reason_code']}" + (f" ({why['detail']})" if why["detail"] else "")


# fmt: off
_TOLD: dict[str, Callable[[Any], str]] = {
    "fields":              ", ".join,
    "tools":               ", ".join,
    "data_class":          str,
    "sensitive_types":     ", ".join,
    "excluded":            _excluded,
    "original_request_id": str,
}
"""What is told of the details, in this order."""
# fmt: on
