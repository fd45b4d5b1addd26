"""What a refusal's message says beyond the registry's words."""

from __future__ import annotations

from typing import Any

import pytest

from terraflow.core.reasons import Governed
from terraflow.gateway.mouths.particulars import particulars


def against(code: Governed, detail: str = "") -> dict[str, str]:
    return {"reason_code": code, "detail": detail}


MANY = {f"c{number}": against(Governed.TOOLS_UNSUPPORTED) for number in range(5)}


@pytest.mark.parametrize(
    ("detail", "details", "said"),
    [
        ("", {}, ""),
        ("workload_hour", {}, " Here: workload_hour."),
        ("FIELD_NOT_SUPPORTED", {"fields": ["seed", "n"]}, " Here: FIELD_NOT_SUPPORTED: seed, n."),
        ("", {"tools": ["tools[1]"]}, " Here: tools[1]."),
        (
            "class",
            {"data_class": "restricted", "sensitive_types": ["pci"], "found": {"payment_card": 1}},
            " Here: class: restricted; pci.",
        ),
        ("class", {"data_class": "restricted", "sensitive_types": []}, " Here: class: restricted."),
        (
            "",
            {"excluded": {"one": against(Governed.PROVIDER_DISABLED, "AUDIO_PRICE_UNKNOWN")}},
            " Here: one PROVIDER_DISABLED (AUDIO_PRICE_UNKNOWN).",
        ),
        ("", {"excluded": MANY}, " Here: c0 TOOLS_UNSUPPORTED, c1 TOOLS_UNSUPPORTED, c2 TOOLS_UNSUPPORTED and 2 more."),
        ("", {"excluded": {}}, ""),
        ("", {"original_request_id": "req_1", "original_reason_code": "PERMITTED"}, " Here: req_1."),
    ],
)
def test_what_is_told(detail: str, details: dict[str, Any], said: str) -> None:
    assert particulars(detail, details) == said
