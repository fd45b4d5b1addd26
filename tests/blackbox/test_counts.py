"""What each vendor counted is shown in each mouth's counting, and costs what the bundle asks for each kind of token.

The prices are different primes, so that a token that is counted as another kind, twice or not at all, costs another
sum.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import Json, purpose, remote
from tests.harness.checks import Checks
from tests.harness.claude import anthropic_at, block, event
from tests.harness.mouths import CHAT, MESSAGES, Mouth
from tests.harness.upstreams import DONE, Upstreams, answer, chunk, flow
from tests.providers.vendor import Reply, Vendor, says, streams

MILLION = 1_000_000
PRICES: Json = {
    "input": 2 * MILLION,
    "cached_input": 3 * MILLION,
    "cache_write": 5 * MILLION,
    "output": 7 * MILLION,
    "reasoning": 11 * MILLION,
    "audio_input": 13 * MILLION,
    "audio_output": 17 * MILLION,
}
OPENAIS: Json = {
    "prompt_tokens": 100,
    "completion_tokens": 60,
    "total_tokens": 160,
    "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 10, "audio_tokens": 20},
    "completion_tokens_details": {
        "reasoning_tokens": 25,
        "audio_tokens": 5,
        "accepted_prediction_tokens": 4,
        "rejected_prediction_tokens": 6,
    },
}
ANTHROPICS: Json = {
    "input_tokens": 25,
    "cache_read_input_tokens": 300,
    "cache_creation_input_tokens": 40,
    "cache_creation": {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 89,
    "output_tokens_details": {"thinking_tokens": 19},
}
HI = {"type": "text", "text": "Hi"}
MESSAGE: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "stop_sequence": None}
AT_LAST: Json = {name: count for name, count in ANTHROPICS.items() if name != "cache_creation"}


class Pair(NamedTuple):
    """A vendor's answer, whole and as a stream; what it costs; how OpenAI's and Anthropic's shapes count it."""

    whole: Reply
    flowing: Reply
    cost: int
    chat: Json
    messages: Json


PAIRS = {
    "talks": Pair(
        answer("Hi", OPENAIS),
        flow(chunk({"content": "Hi"}), chunk({}, "stop"), chunk({}, choices=[], usage=OPENAIS), DONE),
        40 * 2 + 30 * 3 + 10 * 5 + 20 * 13 + 30 * 7 + 25 * 11 + 5 * 17,
        OPENAIS,
        {
            "input_tokens": 60,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 10,
            "output_tokens": 60,
            "output_tokens_details": {"thinking_tokens": 25},
        },
    ),
    "thinks": Pair(
        says(200, MESSAGE | {"content": [HI], "stop_reason": "end_turn", "usage": ANTHROPICS}),
        streams(
            event(
                "message_start",
                message=MESSAGE | {"content": [], "stop_reason": None, "usage": ANTHROPICS | {"output_tokens": 1}},
            ),
            *block(0, HI | {"text": ""}, {"type": "text_delta", "text": "Hi"}),
            event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=AT_LAST),
            event("message_stop"),
        ),
        25 * 2 + 300 * 3 + 40 * 5 + 70 * 7 + 19 * 11,
        {
            "prompt_tokens": 365,
            "completion_tokens": 89,
            "total_tokens": 454,
            "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 40, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 19, "audio_tokens": 0},
        },
        ANTHROPICS,
    ),
}


@pytest.fixture(scope="module")
def vendors(upstreams: Upstreams) -> dict[str, Vendor]:
    return {name: upstreams.open(answer()) for name in PAIRS}


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendors: dict[str, Vendor]) -> Site:
    return launch_shared(
        bundle.document(
            purpose("talks", remote("engine", vendors["talks"].port, prices=PRICES)),
            purpose("thinks", anthropic_at("claude", vendors["thinks"].port) | {"prices": PRICES}),
        )
    )


def _shown(pair: Pair, mouth: Mouth) -> Any:
    if mouth in (CHAT, MESSAGES):
        return pair.chat if mouth is CHAT else pair.messages
    into, out = pair.chat["prompt_tokens_details"], pair.chat["completion_tokens_details"]
    return {
        "input_tokens": pair.chat["prompt_tokens"],
        "cached_input_tokens": into["cached_tokens"],
        "cache_write_tokens": into["cache_write_tokens"],
        "output_tokens": pair.chat["completion_tokens"],
        "reasoning_tokens": out["reasoning_tokens"],
    }


@pytest.mark.parametrize("vendor", PAIRS)
def test_a_whole_answer(mouth: Mouth, vendor: str, site: Site, vendors: dict[str, Vendor], checks: Checks) -> None:
    pair = PAIRS[vendor]
    vendors[vendor].replies[:] = [pair.whole]
    capability = "engine" if vendor == "talks" else "claude"
    body = checks.answered(site.caller, site.caller.ask(vendor), capability=capability, cost=pair.cost)
    assert body["usage"] == _shown(pair, mouth)


@pytest.mark.parametrize("vendor", PAIRS)
def test_a_stream(vendor_mouth: Mouth, vendor: str, site: Site, vendors: dict[str, Vendor]) -> None:
    pair = PAIRS[vendor]
    vendors[vendor].replies[:] = [pair.flowing]
    asked: Json = {"stream_options": {"include_usage": True}} if vendor_mouth is CHAT else {}
    with site.caller.stream(vendor, **asked) as streamed:
        events = streamed.rest()
    shown = _shown(pair, vendor_mouth) if vendor_mouth is CHAT or vendor == "talks" else AT_LAST
    counted = [usage for data in events if data != "[DONE]" and (usage := json.loads(data).get("usage"))]
    assert counted == [shown]
    assert site.caller.evidence(streamed.request_id)["outcome"]["cost_micro_usd"] == pair.cost
