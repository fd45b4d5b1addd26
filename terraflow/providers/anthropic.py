"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from terraflow.contracts.capability import DIALECTS, Capability, ProviderKind
from terraflow.ports.upstream import Answer, Call, Chunk, Failure, ProviderFailure
from terraflow.providers.anthropic_answer import EventTranslator, parse_answer
from terraflow.providers.anthropic_request import asks_for_citations, translate_request
from terraflow.providers.anthropic_thinking import Thinking
from terraflow.providers.channel import Channel
from terraflow.providers.failures import ANTHROPIC
from terraflow.providers.outbound import Endpoint, Outbound

DEFAULT_ENDPOINT = "https://api.anthropic.com"
VERSION = "2023-06-01"

_encode = msgspec.json.Encoder().encode


class AnthropicProvider:
    """One capability behind the Messages API; see `ports.upstream.Provider`."""

    def __init__(self, capability: Capability, endpoint: Endpoint, secret: str | None, outbound: Outbound) -> None:
        """Raises ValueError for a dialect of another vendor, or a secret that a header cannot carry."""
        if capability.dialect not in DIALECTS[ProviderKind.ANTHROPIC]:
            raise ValueError("the dialect is not one of Anthropic's models")
        headers = {"anthropic-version": VERSION}
        if secret is not None:
            headers["x-api-key"] = secret
        path = "/messages" if endpoint.place.base.endswith("/v1") else "/v1/messages"
        self._model = capability.model
        self._thinking = Thinking(capability.dialect)
        self._channel = Channel(endpoint, path, headers, ANTHROPIC)
        self._endpoint: Endpoint | None = endpoint
        self._outbound = outbound

    async def complete(self, call: Call) -> Answer:
        """The whole answer. Raises ProviderFailure."""
        body = _encode(translate_request(self._model, self._thinking, call, stream=False))
        return await self._channel.answer(body, call.timeout_s, parse_answer, call.connecting)

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """The answer chunk by chunk. Raises ProviderFailure."""
        body = _encode(translate_request(self._model, self._thinking, call, stream=True))
        events = await self._channel.events(body, call.timeout_s, call.connecting)
        translator = EventTranslator(cited=call.request.extended and asks_for_citations(call.request.document))
        try:
            while not translator.done and (batch := await events.read()):
                for event in batch:
                    chunk = translator.translate(event)
                    if chunk is not None:
                        yield chunk
                    elif translator.done:
                        events.end()
                        break
            if not translator.whole:
                raise ProviderFailure(Failure.CUT_OFF, reached=True, status=200)
        finally:
            events.close()

    async def close(self) -> None:
        """Let go of the endpoint. Idempotent."""
        if self._endpoint is not None:
            self._outbound.release(self._endpoint)
            self._endpoint = None
