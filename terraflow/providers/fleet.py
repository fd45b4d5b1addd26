"""Several replicas of one model behind one capability: one OpenAI-compatible provider a replica, and a choice a call.

1. A hint is asked for within its own small deadline, which the prompt's taking apart shares; whatever comes of it, the
   call is made.
2. One call is one attempt on one replica: what follows its failure is the gateway's to decide, which is told whether
   another replica could take the call.
3. A replica that could not be reached, broke off or did not answer in time is looked at now and then, beside the
   requests, until it answers: no request is spent on finding out.
4. A prompt's prefix is that of what the engines are sent, not of what the caller wrote.
5. Each replica's endpoint is checked as any other is; one that is outside the boundary is not called.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from terraflow.contracts.capability import Capability, Dialect
from terraflow.core.affinity import member_of
from terraflow.core.reasons import Lookup
from terraflow.ports.hints import Hint, Prefix, Prefixes, ReplicaHints
from terraflow.ports.runtime import Clock
from terraflow.ports.upstream import Answer, Call, Chunk, Failure, Placement, Provider, ProviderFailure
from terraflow.providers.openai_extensions import without_extensions
from terraflow.providers.replicas import FAULTS_MAX, UNREACHED, Seat, another, choose

LOOK_EVERY_S = 0.5
"""How often an unreachable replica is looked at."""


class Member(Provider, Protocol):
    """One replica's provider."""

    async def answers(self) -> bool:
        """Whether the engine is there. MUST NOT raise."""
        ...


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet is advised by. `hints` None: nobody is asked."""

    prefixes: Prefixes
    hints: ReplicaHints | None
    deadline_s: float


class FleetProvider:
    """A fleet's capability; see `ports.upstream.Provider`."""

    def __init__(
        self, capability: Capability, seats: Sequence[Seat], providers: Sequence[Member], advice: Advice, clock: Clock
    ) -> None:
        """`providers` are those of `seats`, in the same order."""
        assert capability.fleet is not None
        most = capability.fleet.pressure_max_percent
        self._pressure_max = None if most is None else most / 100
        self._known_as = capability.hinted_as
        self._dialect = capability.dialect
        # With a tokenizer the engines' own feeds say what became of a cache, and only we say so without.
        self._forgets = capability.fleet.tokenizer is None
        self._seats = tuple(seats)
        self._ids = frozenset(seat.id for seat in seats)
        self._providers = tuple(providers)
        self._advice = advice
        self._clock = clock
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def complete(self, call: Call) -> Answer:
        """The whole answer. Raises ProviderFailure."""
        at, prefix = await self._begun(call)
        seat, held = self._seats[at], False
        try:
            answer = await self._providers[at].complete(call)
            seat.succeeded()
            held = True
            return answer
        except ProviderFailure as failed:
            self._failed(at, failed, call, prefix)
            raise
        finally:
            self._ended(seat, prefix, held)

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """The answer chunk by chunk. Raises ProviderFailure."""
        at, prefix = await self._begun(call)
        seat, held = self._seats[at], False
        chunks = self._providers[at].stream(call)
        try:
            async for chunk in chunks:
                held = True
                yield chunk
            seat.succeeded()
        except ProviderFailure as failed:
            self._failed(at, failed, call, prefix)
            raise
        finally:
            self._ended(seat, prefix, held)
            await chunks.aclose()  # type: ignore[attr-defined]

    async def close(self) -> None:
        """Close every replica's provider. Idempotent."""
        looking = tuple(self._looking.values())
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        for provider in self._providers:
            await provider.close()

    def exhausted(self) -> bool:
        """Whether no replica that may be called and does not rest is known to have room: each one's last pressure is
        above the fleet's bound. One that has told none lately has room."""
        now = self._clock.monotonic()
        able = [seat.id for seat in self._seats if seat.rests_until <= now and seat.door.permitted]
        if not able or self._pressure_max is None or self._advice.hints is None:
            return not able
        told: dict[str, float] = {}
        for replica, pressure in self._advice.hints.pressure(*self._known_as).items():
            member = member_of(replica, self._ids)
            told[member] = min(pressure, told.get(member, pressure))
        return all(told.get(replica, 0.0) > self._pressure_max for replica in able)

    async def _begun(self, call: Call) -> tuple[int, Prefix | None]:
        """Choose a replica, say so, and count the call there. Raises ProviderFailure when no replica may be called, or
        when no engine has words for the request."""
        if call.connecting is not None:
            call.connecting(True)
        advice, hint = self._advice, None
        monotonic = self._clock.monotonic
        began = monotonic()
        budget_s = min(advice.deadline_s, call.timeout_s)
        prefix = await advice.prefixes.prefix(_sent(call, self._dialect), budget_s)
        now = monotonic()
        if advice.hints is not None:
            hint = await _asked(advice.hints, prefix, budget_s - (now - began))
            now = monotonic()
        at = choose(self._seats, hint, prefix, call.failed_replicas, now)
        if at < 0:
            raise ProviderFailure(Failure.CONNECT, reached=False)
        seat = self._seats[at]
        if call.placed is not None:
            call.placed(_placement(seat, hint, self._ids))
        if prefix is not None and advice.hints is not None:
            advice.hints.sent(prefix, seat.id, _matched(seat, hint, self._ids))
        seat.began()
        return at, prefix

    def _ended(self, seat: Seat, prefix: Prefix | None, held: bool) -> None:
        seat.ended()
        if prefix is not None and self._advice.hints is not None:
            self._advice.hints.ended(prefix, seat.id, held)

    def _failed(self, at: int, failed: ProviderFailure, call: Call, prefix: Prefix | None) -> None:
        if failed.failure not in FAULTS_MAX:
            return
        seat, now = self._seats[at], self._clock.monotonic()
        seat.failed(failed.failure, now, failed.retry_after_s)
        failed.elsewhere = another(self._seats, seat, call.failed_replicas, now)
        if (
            failed.failure is Failure.CONNECT
            and prefix is not None
            and self._forgets
            and self._advice.hints is not None
        ):
            self._advice.hints.lost(prefix, seat.id)
        if failed.failure in UNREACHED and seat.id not in self._looking:
            looking = asyncio.create_task(self._look(at))
            self._looking[seat.id] = looking
            looking.add_done_callback(lambda _: self._looking.pop(seat.id, None))

    async def _look(self, at: int) -> None:
        seat = self._seats[at]
        while seat.faults:
            await self._clock.sleep(LOOK_EVERY_S)
            if await self._providers[at].answers():
                seat.succeeded()
            else:
                seat.silent(self._clock.monotonic())


def _sent(call: Call, dialect: Dialect) -> dict[str, Any]:
    """The document as the engine gets it: a cache mark that moves on with a conversation changes no prefix there.
    Raises ProviderFailure: UNSUPPORTED_FIELD."""
    request = call.request
    return without_extensions(request.document, dialect) if request.extended else request.document


async def _asked(hints: ReplicaHints, prefix: Prefix | None, left_s: float) -> Hint | None:
    """The hint; one that there is no time for is a hint that came too late."""
    if prefix is None or not prefix.hashes:
        return Hint(reason=Lookup.NO_HINT)
    if left_s <= 0:
        return Hint(reason=Lookup.TIMEOUT)
    return await hints.hint(prefix, left_s)


def _matched(seat: Seat, hint: Hint | None, ids: frozenset[str]) -> int:
    ranked = () if hint is None else hint.ranked
    return next((entry.matched_tokens for entry in ranked if member_of(entry.replica, ids) == seat.id), 0)


def _placement(seat: Seat, hint: Hint | None, ids: frozenset[str]) -> Placement:
    if hint is None:
        return Placement(replica=seat.id)
    first = hint.ranked[0] if hint.ranked else None
    return Placement(
        replica=seat.id,
        hint=hint.reason.value,
        ranked=None if first is None else member_of(first.replica, ids),
        matched_tokens=0 if first is None else max(0, first.matched_tokens),
    )
