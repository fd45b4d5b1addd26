"""What is replayed: a recorded hour of conversations, and requests that share a system prompt."""

from __future__ import annotations

import lzma
import random
from pathlib import Path

from terraflow.hints.replay.trace import TraceRequest, parse_trace

CONVERSATIONS = Path(__file__).parents[1] / "traces" / "mooncake_conversation_trace.jsonl.xz"


def conversations() -> list[TraceRequest]:
    with lzma.open(CONVERSATIONS) as lines:
        return parse_trace(lines)


def shared_prompt(shared: int, own: int, rate: float, count: int = 3000) -> list[TraceRequest]:
    """Requests that share a system prompt of so many blocks and nothing else, with about `own` blocks of their own."""
    luck = random.Random(1)
    at_ms, name, requests = 0.0, 1000, []
    for _ in range(count):
        at_ms += luck.expovariate(rate) * 1000.0
        blocks = luck.randrange(max(1, own // 2), own * 3 // 2 + 1)
        ids = (*range(shared), *range(name, name + blocks))
        name += blocks
        requests.append(TraceRequest(at_ms, 512 * len(ids), 100, ids))
    return requests
