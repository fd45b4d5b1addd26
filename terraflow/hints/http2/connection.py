"""One connection's calls: how they begin, what they cost, and how they end.

1. A stream that has ended while its task still cleans up is an orphan, and counts as a call.
2. Frames that make work without being calls are paid for with tokens; a peer without one is cut off.
"""

from __future__ import annotations

import asyncio
import time

from terraflow.hints.http2.call import Call, Peer
from terraflow.hints.http2.compression import HeaderReader, field, trailers_only
from terraflow.hints.http2.frames import ConnectionFault, ErrorCode, rst_stream
from terraflow.hints.http2.heads import ENCODINGS, Head
from terraflow.hints.http2.intake import Intake
from terraflow.hints.http2.limits import Budget
from terraflow.hints.http2.link import Link
from terraflow.hints.http2.methods import Method
from terraflow.hints.http2.shared import Shared
from terraflow.hints.http2.status import Status
from terraflow.hints.http2.stream import OpenBlock, Stream

_ABANDONED_MAX = 512
_ACCEPTED = field(b"grpc-accept-encoding", ",".join(ENCODINGS).encode())


class Connection(Link):
    """See the module. Attributes are for the frames' readers and the calls' runners."""

    intake: Intake

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop, peer: Peer) -> None:
        super().__init__(shared, loop)
        self.peer = peer
        self.reader = HeaderReader(shared.limits)
        self.streams: dict[int, Stream] = {}
        self.abandoned: dict[int, None] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.orphans = 0
        self.open_block: OpenBlock | None = None
        self.now = time.monotonic()
        self._budget = Budget()
        self._answered = 0
        self.settled = False
        self.quiet_since = self.heard_at = self.now

    def spend(self, bucket: str) -> None:
        """Take a token; a peer without one is too busy with what is no call.

        Two calls that were answered pay for a reset: with short deadlines many are given up while a server is slow.
        """
        if not self._budget.take(bucket, self.now):
            if bucket == "resets" and self._answered >= 2:
                self._answered -= 2
                return
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {bucket}")

    def begin(self, number: int, head: Head, method: Method) -> Stream:
        """A new stream."""
        deadline = None if head.timeout_s is None else self.now + head.timeout_s
        call = Call(head.path, head, self.peer, deadline)
        window = self.shared.limits.stream_window_bytes
        stream = self.streams[number] = Stream(number, head, method, call, window, self.outbox.initial, self.now)
        self.shared.tally["calls"] += 1
        return stream

    def refuse(self, number: int, head: Head, remote_ended: bool) -> None:
        """A call that ends before it begins."""
        refusal = head.refusal
        if refusal is None:
            block = trailers_only(200, Status.UNIMPLEMENTED, f"there is no method {head.path[:256]}")
        else:
            extra = _ACCEPTED if refusal.status is Status.UNIMPLEMENTED else b""
            block = trailers_only(refusal.http_status, refusal.status, refusal.message, extra)
        self.shared.tally["calls"] += 1
        self.outbox.refuse(number, block)
        if not remote_ended:
            self.outbox.control(rst_stream(number, ErrorCode.NO_ERROR))
            self.abandon(number)

    def abandon(self, number: int) -> None:
        """Frames of this stream may still be under way, and mean nothing."""
        self.abandoned[number] = None
        if len(self.abandoned) > _ABANDONED_MAX:
            del self.abandoned[next(iter(self.abandoned))]

    # How streams end.

    def fail(self, stream: Stream, status: Status, message: str) -> None:
        """End the call with this status, unless it has ended."""
        if stream.gone:
            return
        if stream.unsent is not None:
            self.outbox.control(rst_stream(stream.id, ErrorCode.CANCEL))
            self.drop(stream)
            return
        self.outbox.end(stream, status, message)

    def broken(self, stream: Stream, broken: Exception) -> None:
        """A handler raised what it should not have."""
        self.shared.tally["broken"] += 1
        self.shared.on_fault(stream.call.path, broken)
        self.fail(stream, Status.INTERNAL, "the service is at fault")

    def replied(self, stream: Stream) -> None:
        """The reply's end has been written."""
        self._answered += 1
        if not stream.remote_ended:
            self.outbox.control(rst_stream(stream.id, ErrorCode.NO_ERROR))
        self.drop(stream)

    def drop(self, stream: Stream) -> None:
        """The stream is over: forget it, and cancel what still works for it."""
        if stream.gone:
            return
        stream.gone = True
        del self.streams[stream.id]
        if not stream.remote_ended:
            self.abandon(stream.id)
        self.intake.forget(stream)
        if not self.streams:
            self.quiet_since = self.now
        task = stream.task
        if task is None and stream.unsent is None:
            return
        if stream.timer is not None:
            stream.timer.cancel()
        self.outbox.forget(stream)
        if task is not None and not task.done():
            self.orphans += 1
            if task is not asyncio.current_task(self.loop):
                task.cancel()

    def task_done(self, stream: Stream) -> None:
        """The stream's task is at its end."""
        if stream.task is not None:
            self.tasks.discard(stream.task)
            stream.task = None
            if stream.gone:
                self.orphans -= 1
        self.flush()

    def give_up(self) -> None:
        for stream in list(self.streams.values()):
            self.drop(stream)

    def at_rest(self) -> bool:
        return not self.streams and not self.yielded
