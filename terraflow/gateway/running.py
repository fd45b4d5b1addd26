"""The governed requests that are inside the plane now.

1. A request is here from its first governed step until its outcome is recorded; then whoever waits for it is woken.
2. A caller that leaves, or cancels, interrupts its request only where waiting is all it does: a durable write, once
   begun, is always seen through, so that what is recorded is what happened.
3. What interrupted a request first is what it ends as.
4. An item of a batch may also be asked to give way: that interrupts it only while no provider has been asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType

from terraflow.core.outcome import Refuse
from terraflow.core.reasons import Governed


class Interrupted(Exception):
    """A wait was ended from outside the request."""


class CallerLeft(Interrupted):
    """The caller closed its connection before the answer was whole."""


class CancelledById(Interrupted):
    """The application cancelled the request by its id."""


class PlaneStops(Interrupted):
    """The plane stops, and the request has had its time."""


class BatchStops(Interrupted):
    """The item's batch takes nothing more, or the plane stops, and no provider had been asked."""


# fmt: off
INTERRUPTED: Mapping[type[Interrupted], Refuse] = {
    CallerLeft:    Refuse(reason=Governed.CANCELLED,      detail="caller_left"),
    CancelledById: Refuse(reason=Governed.CANCELLED,      detail="by_id"),
    PlaneStops:    Refuse(reason=Governed.INTERNAL_ERROR, detail="plane_stopped"),
    BatchStops:    Refuse(reason=Governed.CANCELLED,      detail="batch_stopped"),
}
# fmt: on
"""What a request ends as that was interrupted."""


class Presence:
    """Whether the request may go on waiting, and how to stop it when it may not.

    `with presence:` is a wait that the caller's leaving ends with CallerLeft, its cancelling with CancelledById, the
    plane's stopping with PlaneStops. `of` is the tenant and the application whose request it is.
    """

    __slots__ = ("_asked", "_interrupt", "_why", "of")

    def __init__(self, of: tuple[str, str] | None = None) -> None:
        self.of = of
        self._asked = False
        self._why: type[Interrupted] | None = None
        self._interrupt: asyncio.Task[object] | None = None

    def leave(self) -> None:
        """The caller is gone: end the current wait, if there is one, and every later one at its start."""
        self._end(CallerLeft)

    def cancel(self) -> None:
        """The application wants it no more: the same."""
        self._end(CancelledById)

    def stop(self) -> None:
        """The plane stops: the same."""
        self._end(PlaneStops)

    def give_way(self) -> None:
        """An item's batch stops: the same, with BatchStops, unless a provider has been asked."""
        if not self._asked:
            self._end(BatchStops)

    def asks(self) -> None:
        """A provider is asked from here on, without a pause. Raises as a wait would at its start: what is interrupted
        by then has asked nobody."""
        if self._why is not None:
            raise self._why
        self._asked = True

    def _end(self, why: type[Interrupted]) -> None:
        if self._why is not None:
            return
        self._why = why
        if self._interrupt is not None:
            self._interrupt.cancel()

    def __enter__(self) -> None:
        if self._why is not None:
            raise self._why
        self._interrupt = asyncio.current_task()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._interrupt = self._interrupt, None
        if kind is asyncio.CancelledError and self._why is not None and task is not None:
            task.uncancel()
            raise self._why from None


class Running:
    """The open requests of one process, by request id."""

    def __init__(self) -> None:
        self._open: dict[str, Presence] = {}
        self._waited_for: dict[str, asyncio.Event] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, request_id: str, presence: Presence) -> None:
        """The request is inside now."""
        self._open[request_id] = presence
        self._empty.clear()

    def ended(self, request_id: str) -> None:
        """The request's outcome is recorded. Idempotent."""
        self._open.pop(request_id, None)
        event = self._waited_for.pop(request_id, None)
        if event is not None:
            event.set()
        if not self._open:
            self._empty.set()

    def cancel(self, request_id: str, of: tuple[str, str]) -> bool:
        """End the waiting of a tenant's application's own request; False when it has none of this id inside."""
        presence = self._open.get(request_id)
        if presence is None or presence.of != of:
            return False
        presence.cancel()
        return True

    def stop(self) -> None:
        """The plane stops: end every request's waiting, so that each is closed and recorded as what it is."""
        for presence in list(self._open.values()):
            presence.stop()

    async def wait(self, request_id: str, timeout_s: float) -> bool:
        """True once the request has ended, or is not inside; False when the time ran out first."""
        if request_id not in self._open:
            return True
        event = self._waited_for.setdefault(request_id, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def drained(self, timeout_s: float) -> bool:
        """True once nothing is inside; False when the time ran out first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
