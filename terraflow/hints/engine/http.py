"""The simulated engine over HTTP, as vLLM answers: chat and plain completions, models, health, metrics.

1. A request goes to the rank that the header `x-data-parallel-rank` names, else to the one with the fewest requests.
2. A caller that leaves ends its request: waiting it costs nothing, decoding it stops.
3. `POST /reset_prefix_cache` forgets all blocks unless requests run (409). `POST /faults` exists only when asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from terraflow.hints.engine.answers import Piece, Shape, Usage, pieces, refusal
from terraflow.hints.engine.asked import Asked, Refused, Tokens, parse
from terraflow.hints.engine.metrics import CONTENT_TYPE, exposition
from terraflow.hints.engine.publish import Faults, Publisher
from terraflow.hints.engine.rank import Busy, Rank, Work

BODY_BYTES_MAX = 16 << 20
_JSON = msgspec.json.Encoder()


class Front:
    """One engine's routes. `adapters` are LoRA names served beside the model."""

    def __init__(
        self,
        *,
        model: str,
        adapters: Sequence[str],
        ranks: Sequence[Rank],
        publishers: Sequence[Publisher],
        tokens: Tokens,
        output_tokens: int,
        faults: bool,
    ) -> None:
        self._model, self._adapters, self._ranks, self._publishers = model, tuple(adapters), ranks, publishers
        self._tokens, self._output_tokens, self._faults = tokens, output_tokens, faults
        self._numbers = 0

    def application(self) -> web.Application:
        """The routes, ready to be served."""
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        add = application.router.add_route
        add("POST", "/v1/chat/completions", self._chat)
        add("POST", "/v1/completions", self._plain)
        add("GET", "/v1/models", self._models)
        add("GET", "/health", self._health)
        add("GET", "/metrics", self._metrics)
        add("POST", "/reset_prefix_cache", self._reset)
        if self._faults:
            add("POST", "/faults", self._set_faults)
        return application

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=True)

    async def _plain(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=False)

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            asked = parse(await request.read(), chat=chat, tokens=self._tokens, output_tokens=self._output_tokens)
            rank = self._rank(request)
        except Refused as refused:
            return _json(refusal(str(refused), "BadRequestError", 400), 400)
        if asked.model != self._model and asked.model not in self._adapters:
            return _json(refusal(f"The model {asked.model!r} does not exist.", "NotFoundError", 404), 404)
        await self._stall()
        self._numbers += 1
        shape = Shape(f"{'chatcmpl' if chat else 'cmpl'}-{self._numbers}", int(time.time()), asked.model, chat)
        try:
            work = await rank.begin(asked.prompt, asked.model if asked.model in self._adapters else "")
        except Busy:
            return _json(refusal("too many requests wait", "ServiceUnavailableError", 503), 503)
        output: list[int] = []
        whole = False
        try:
            said = pieces(asked.prompt, asked.output_tokens, self._tokens.text)
            if asked.stream:
                answer = await self._stream(request, rank, asked, shape, work, said, output)
            else:
                answer = await self._whole(rank, asked, shape, work, said, output)
            whole = True
            return answer
        finally:
            rank.end(work, output, whole)

    async def _whole(
        self, rank: Rank, asked: Asked, shape: Shape, work: Work, said: Sequence[Piece], output: list[int]
    ) -> web.Response:
        await asyncio.sleep(rank.costs.decode_s(sum(len(piece.tokens) for piece in said)))
        for piece in said:
            output.extend(piece.tokens)
        usage = Usage(len(asked.prompt), len(output), work.cached_tokens)
        return _json(shape.whole("".join(piece.text for piece in said), _finish(asked), usage), 200)

    async def _stream(
        self,
        request: web.Request,
        rank: Rank,
        asked: Asked,
        shape: Shape,
        work: Work,
        said: Sequence[Piece],
        output: list[int],
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        first = shape.first()
        if first is not None:
            await answer.write(_event(first))
        clock = asyncio.get_running_loop().time
        begun = clock()
        for piece in said:
            output.extend(piece.tokens)
            await asyncio.sleep(begun + rank.costs.decode_s(len(output)) - clock())
            await answer.write(_event(shape.chunk(piece.text)))
        await answer.write(_event(shape.last(_finish(asked))))
        if asked.include_usage:
            await answer.write(_event(shape.told(Usage(len(asked.prompt), len(output), work.cached_tokens))))
        await answer.write(b"data: [DONE]\n\n")
        await answer.write_eof()
        return answer

    def _rank(self, request: web.Request) -> Rank:
        named = request.headers.get("x-data-parallel-rank")
        if named is None:
            return min(self._ranks, key=lambda rank: rank.counts.running + rank.counts.waiting)
        if not (named.isascii() and named.isdecimal() and len(named) < 6 and int(named) < len(self._ranks)):
            raise Refused(f"x-data-parallel-rank is within 0 and {len(self._ranks) - 1}")
        return self._ranks[int(named)]

    async def _models(self, _: web.Request) -> web.Response:
        cards = [
            {"id": name, "object": "model", "created": 0, "owned_by": "sim-engine", "parent": parent}
            for name, parent in [(self._model, None), *((name, self._model) for name in self._adapters)]
        ]
        return _json({"object": "list", "data": cards}, 200)

    async def _health(self, _: web.Request) -> web.Response:
        await self._stall()
        return web.Response()

    async def _metrics(self, _: web.Request) -> web.Response:
        await self._stall()
        return web.Response(body=exposition(self._model, self._ranks).encode(), headers={"content-type": CONTENT_TYPE})

    async def _reset(self, _: web.Request) -> web.Response:
        done = [rank.clear() for rank in self._ranks]
        return web.Response(status=200 if all(done) else 409)

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            faults = msgspec.json.decode(await request.read(), type=Faults)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            return _json(refusal(str(fault), "BadRequestError", 400), 400)
        for publisher in self._publishers:
            publisher.faults = faults
        return web.Response(status=204)

    async def _stall(self) -> None:
        await asyncio.sleep(max((publisher.faults.stall_s for publisher in self._publishers), default=0.0))


def _finish(asked: Asked) -> str:
    return "length" if asked.cut else "stop"


def _event(document: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % _JSON.encode(document)


def _json(document: Mapping[str, Any], status: int) -> web.Response:
    return web.Response(body=_JSON.encode(document), status=status, headers={"content-type": "application/json"})
