"""Any endpoint that speaks OpenAI's chat completions: OpenAI, vLLM, SGLang, llama.cpp."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from terraflow.contracts.capability import DIALECTS, Capability, ProviderKind
from terraflow.ports.upstream import Answer, Call, Chunk, Failure, ProviderFailure
from terraflow.providers.channel import Channel
from terraflow.providers.failures import OPENAI
from terraflow.providers.openai_request import request_body
from terraflow.providers.openai_wire import ChunkParser, parse_answer
from terraflow.providers.outbound import Endpoint, Outbound

DEFAULT_ENDPOINT = "https://api.openai.com/v1"
ANSWERS_S_MAX = 1.0
"""An engine under full load lists its models within milliseconds."""


class OpenAiProvider:
    """One capability behind an OpenAI-compatible endpoint; see `ports.upstream.Provider`."""

    def __init__(self, capability: Capability, endpoint: Endpoint, secret: str | None, outbound: Outbound) -> None:
        """Raises ValueError for a dialect of another vendor, or a secret that a header cannot carry."""
        if capability.dialect not in DIALECTS[ProviderKind.OPENAI]:
            raise ValueError("the dialect is not one of an OpenAI-compatible endpoint")
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        self._model = capability.model
        self._dialect = capability.dialect
        self._channel = Channel(endpoint, "/chat/completions", headers, OPENAI)
        self._endpoint: Endpoint | None = endpoint
        self._outbound = outbound

    async def complete(self, call: Call) -> Answer:
        """The whole answer. Raises ProviderFailure."""
        body = request_body(self._model, self._dialect, call, stream=False)
        return await self._channel.answer(body, call.timeout_s, partial(parse_answer, call=call), call.connecting)

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """The answer chunk by chunk. Raises ProviderFailure."""
        body = request_body(self._model, self._dialect, call, stream=True)
        events = await self._channel.events(body, call.timeout_s, call.connecting)
        parser = ChunkParser(call)
        try:
            while not parser.done and (batch := await events.read()):
                for event in batch:
                    chunk = parser.parse(event)
                    if chunk is None:
                        events.end()
                        break
                    yield chunk
            if not parser.whole:
                raise ProviderFailure(Failure.CUT_OFF, reached=True, status=200)
        finally:
            events.close()

    async def answers(self) -> bool:
        """Whether the engine is there: it lists its models, or refuses to."""
        return await self._channel.answers("/models", ANSWERS_S_MAX)

    async def close(self) -> None:
        """Let go of the endpoint. Idempotent."""
        if self._endpoint is not None:
            self._outbound.release(self._endpoint)
            self._endpoint = None
