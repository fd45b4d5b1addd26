"""An answer as it is stored, for the replay of its key or for the response cache."""

from __future__ import annotations

import msgspec

from terraflow.core.types import Instant
from terraflow.ports.upstream import Answer


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, who gave it, and until when the response cache may give it again (0: never).

    A key's answer may be stored for longer than the cache may use it, so the cache's time is in the answer itself.
    """

    answer: Answer
    capability: str
    fresh_until: Instant


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(KeptAnswer).decode
