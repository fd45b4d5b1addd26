"""Anthropic's API behind either streaming mouth: what it says arrives in the mouth's own words, and a stream that is
cut at any of its events ends in an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.harness import bundle
from tests.harness.bundle import purpose
from tests.harness.caller import until
from tests.harness.checks import Checks
from tests.harness.claude import BEGUN, anthropic_at, block, claude_says, ended, event
from tests.harness.mouths import CHAT, MESSAGES, VENDORS, Mouth
from tests.harness.upstreams import Upstreams
from tests.providers.vendor import Vendor, streams

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def _call(index: int, named: str, *pieces: str) -> list[bytes]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": named, "name": "look_up", "input": {}}, *deltas)


THOUGHT = block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Hm."},
    {"type": "signature_delta", "signature": "c2ln"},
)
SAID = block(1, {"type": "text", "text": "Let "}, {"type": "text_delta", "text": "me see."})
STREAM = [
    BEGUN,
    event("ping"),
    *THOUGHT,
    *SAID,
    *_call(2, "toolu_a", '{"a"', ":1}"),
    *_call(3, "toolu_b", "", '{"a":2}'),
    *_call(4, "toolu_c"),
    *ended("tool_use"),
]


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(streams(*STREAM))


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    document = bundle.document(purpose("plain", anthropic_at("claude", vendor.port), tools=["look_up"]))
    return launch_shared(document, health_faults_max=10_000)


@every_vendor_mouth
def test_text_and_parallel_calls_arrive_each_in_its_place(vendor_mouth: Mouth, site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [streams(*STREAM)]
    with site.caller.stream("plain", tools=[TOOL]) as streamed:
        events = [json.loads(one) for one in streamed.rest() if one != "[DONE]"]
    said, names, calls = "", dict[int, str](), dict[int, str]()
    for one in events:
        if vendor_mouth is MESSAGES:
            started, delta = one.get("content_block", {}), one.get("delta", {})
            said += started.get("text", "") + delta.get("text", "")
            if started.get("type") == "tool_use":
                names[one["index"]], calls[one["index"]] = started["id"], ""
            if "partial_json" in delta:
                calls[one["index"]] += delta["partial_json"]
            continue
        for choice in one["choices"]:
            said += choice["delta"].get("content") or ""
            for part in choice["delta"].get("tool_calls", ()):
                names.setdefault(part["index"], part.get("id", ""))
                calls[part["index"]] = calls.get(part["index"], "") + part["function"].get("arguments", "")
    assert said == "Let me see."
    assert list(names) == ([2, 3, 4] if vendor_mouth is MESSAGES else [0, 1, 2])
    assert list(names.values()) == ["toolu_a", "toolu_b", "toolu_c"]
    assert [json.loads(text or "{}") for text in calls.values()] == [{"a": 1}, {"a": 2}, {}]


@every_vendor_mouth
@pytest.mark.parametrize("end", [False, True], ids=["dropped", "ended"])
@pytest.mark.parametrize("after", range(1, len(STREAM)))
def test_a_stream_that_is_cut_at_any_event(after: int, end: bool, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [streams(*STREAM[:after], end=end)]
    code = Governed.PROVIDER_ERROR_UNRECOVERED
    with site.caller.stream("plain", tools=[TOOL]) as streamed:
        if streamed.response.status_code == 200:
            checks.broken(site.caller, streamed, streamed.rest(), code, "cut_off")
            return
    outcome = checks.outcome(site.caller, streamed.request_id, code, detail="cut_off")
    assert after <= 3, "nothing had been said"
    assert len(outcome["attempts"]) == 3


@every_vendor_mouth
@pytest.mark.parametrize("after", range(3, len(STREAM), 3))
def test_a_caller_that_leaves_at_any_event(after: int, site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [streams(*STREAM[:after], 60.0)]
    left = len(vendor.closed_at)
    with site.caller.stream("plain", tools=[TOOL]) as streamed:
        next(streamed.events())
    until(lambda: len(vendor.closed_at) > left)
    outcome = checks.outcome(site.caller, streamed.request_id, Governed.CANCELLED, detail="caller_left")
    assert outcome["cost_micro_usd"] > 0


def _counts(mouth: Mouth, usage: dict[str, Any]) -> list[int]:
    """A usage's input, the parts of it that were read from a cache and written to one, and its output."""
    if mouth is CHAT:
        details = usage["prompt_tokens_details"]
        parts = [details["cached_tokens"], details["cache_write_tokens"]]
        return [usage["prompt_tokens"], *parts, usage["completion_tokens"]]
    if mouth is MESSAGES:
        parts = [usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]]
        return [usage["input_tokens"] + sum(parts), *parts, usage["output_tokens"]]
    parts = [usage["cached_input_tokens"], usage["cache_write_tokens"]]
    return [usage["input_tokens"], *parts, usage["output_tokens"]]


@every_mouth
def test_cached_tokens_are_counted_in_the_mouths_own_way(
    mouth: Mouth, site: Site, vendor: Vendor, checks: Checks
) -> None:
    """Anthropic counts them outside of its input tokens, OpenAI inside."""
    vendor.replies[:] = [claude_says({"type": "text", "text": "Hm."})]
    whole = checks.answered(site.caller, site.caller.ask("plain"), capability="claude", cost=23)
    assert _counts(mouth, whole["usage"]) == [10, 3, 3, 5]
    if mouth not in VENDORS:
        return
    vendor.replies[:] = [streams(BEGUN, *block(0, {"type": "text", "text": "Hm."}), *ended())]
    asks = {"stream_options": {"include_usage": True}} if mouth is CHAT else {}
    with site.caller.stream("plain", **asks) as streamed:
        events = [json.loads(one) for one in streamed.rest() if one != "[DONE]"]
    (usage,) = [one["usage"] for one in events if one.get("usage")]
    assert _counts(mouth, usage) == [10, 6, 0, 5]
