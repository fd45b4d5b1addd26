"""The server as grpcio's clients see it, blocking and asyncio: every shape of call, and every way in which one ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from terraflow.hints.http2.limits import Limits
from terraflow.hints.http2.methods import Bidi, ClientStream, Inline, ServerStream, Unary
from terraflow.hints.http2.server import Server
from terraflow.hints.http2.status import GrpcError, Status

MIB = 1024 * 1024


class Service:
    """A method for each shape and each ending, and what happened to its calls."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.reads = 0
        self.sends = 0

    async def upper(self, request, call):
        await asyncio.sleep(0)
        return request.upper()

    async def forever(self, request, call):
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("forever")

    def refused(self, request, call):
        raise GrpcError(Status(int(request)), "nö: 100 %\n")

    def broken(self, request, call):
        raise RuntimeError("secret")

    async def broken_late(self, request, call):
        yield b"one"
        raise RuntimeError("secret")

    async def join(self, requests, call):
        parts = [request async for request in requests]
        return b"%d %d" % (len(parts), sum(map(len, parts)))

    async def first(self, requests, call):
        return await anext(requests)

    async def slow_reader(self, requests, call):
        async for _ in requests:
            self.reads += 1
            await asyncio.sleep(0.01)
        return b""

    async def count(self, request, call):
        for number in range(int(request)):
            yield str(number).encode()

    async def endless(self, request, call):
        try:
            while True:
                self.sends += 1
                yield bytes(10_000)
        finally:
            self.ended.append("endless")

    async def back(self, requests, call):
        async for request in requests:
            yield request + b"!"

    def who(self, request, call):
        return repr((call.metadata, call.get("authorization"), call.get("none"), call.peer.address, call.path)).encode()

    def left(self, request, call):
        return repr(call.remaining_s()).encode()

    def methods(self):
        return {
            "/t/Echo": Inline(lambda request, _: request),
            "/t/Upper": Unary(self.upper),
            "/t/Forever": Unary(self.forever),
            "/t/Refused": Inline(self.refused),
            "/t/Broken": Inline(self.broken),
            "/t/BrokenLate": ServerStream(self.broken_late),
            "/t/Join": ClientStream(self.join),
            "/t/First": ClientStream(self.first),
            "/t/SlowReader": ClientStream(self.slow_reader),
            "/t/Count": ServerStream(self.count),
            "/t/Endless": ServerStream(self.endless),
            "/t/Back": Bidi(self.back),
            "/t/Who": Inline(self.who),
            "/t/Left": Inline(self.left),
            "/t/Parsed": Inline(lambda request, _: request, int, lambda reply: str(reply).encode()),
        }


class Running:
    """A started server, its service, and what nobody expected."""

    def __init__(self, **limits: float) -> None:
        self.service = Service()
        self.faults: list[tuple[str, BaseException]] = []
        self.server = Server(
            self.service.methods(),
            limits=Limits(**limits),
            on_fault=lambda where, what: self.faults.append((where, what)),
        )
        self.port = 0

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def running(**limits: float) -> AsyncIterator[Running]:
    made = Running(**limits)
    made.port = await made.server.start("127.0.0.1", 0)
    try:
        yield made
    finally:
        await made.server.stop(0.2)
        assert made.server.shared.assembling == 0
        assert made.server.shared.addresses.total() == 0


@asynccontextmanager
async def dialled(**limits: float):
    async with running(**limits) as made, grpc.aio.insecure_channel(made.target) as channel:
        yield made, channel


async def ended(made: Running, name: str) -> None:
    for _ in range(500):
        if name in made.service.ended:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{name} goes on")


async def failure(call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details()


@pytest.mark.parametrize("size", [0, 1, 16_370, 16_384, 70_000, 4 * MIB])
async def test_unary_of_every_size(size):
    async with dialled() as (_, channel):
        body = bytes(range(256)) * (size // 256) + bytes(size % 256)
        assert await channel.unary_unary("/t/Echo")(body, timeout=30) == body
        assert await channel.unary_unary("/t/Upper")(body, timeout=30) == body.upper()


async def test_a_message_that_is_too_large():
    async with dialled() as (_, channel):
        code, _ = await failure(channel.unary_unary("/t/Echo")(bytes(4 * MIB + 1), timeout=30))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await channel.unary_unary("/t/Echo")(b"on", timeout=30) == b"on"


async def test_streams_of_requests():
    async with dialled() as (_, channel):
        for count, size in ((0, 0), (1, 0), (1000, 10), (30, 300_000)):
            sent = iter([bytes(size)] * count)
            assert await channel.stream_unary("/t/Join")(sent, timeout=30) == b"%d %d" % (count, count * size)


async def test_streams_of_replies():
    async with dialled() as (_, channel):
        for count in (0, 1, 3000):
            got = [reply async for reply in channel.unary_stream("/t/Count")(str(count).encode(), timeout=30)]
            assert got == [str(number).encode() for number in range(count)]


async def test_both_directions_in_step():
    async with dialled() as (_, channel):
        call = channel.stream_stream("/t/Back")(timeout=30)
        for number in range(50):
            await call.write(str(number).encode() * 1000)
            assert await call.read() == str(number).encode() * 1000 + b"!"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_reply_before_the_requests_have_ended():
    async with dialled() as (_, channel):
        call = channel.stream_unary("/t/First")(timeout=30)
        await call.write(b"one")
        assert await call == b"one"
        assert await channel.unary_unary("/t/Echo")(b"on", timeout=30) == b"on"


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
async def test_every_status_and_its_message(status):
    async with dialled() as (_, channel):
        code, details = await failure(channel.unary_unary("/t/Refused")(str(int(status)).encode(), timeout=30))
        assert (code.name, details) == (status.name, "nö: 100 %\n")


async def test_what_a_handler_raises_is_told_to_the_owner_and_not_to_the_caller():
    async with dialled() as (made, channel):
        code, details = await failure(channel.unary_unary("/t/Broken")(b"", timeout=30))
        assert (code, "secret" in details) == (grpc.StatusCode.INTERNAL, False)
        call = channel.unary_stream("/t/BrokenLate")(b"", timeout=30)
        assert await call.read() == b"one"
        assert (await failure(call.read()))[0] is grpc.StatusCode.INTERNAL
        assert [(where, str(what)) for where, what in made.faults] == [
            ("/t/Broken", "secret"),
            ("/t/BrokenLate", "secret"),
        ]


async def test_what_cannot_be_parsed_or_found():
    async with dialled() as (_, channel):
        assert (await failure(channel.unary_unary("/t/Parsed")(b"no number", timeout=30)))[
            0
        ] is grpc.StatusCode.INTERNAL
        assert await channel.unary_unary("/t/Parsed")(b"7", timeout=30) == b"7"
        assert (await failure(channel.unary_unary("/t/Nothing")(b"", timeout=30)))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_a_deadline_ends_the_call_and_its_handler():
    async with dialled() as (made, channel):
        began = time.monotonic()
        code, _ = await failure(channel.unary_unary("/t/Forever")(b"", timeout=0.1))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert time.monotonic() - began < 5
        await ended(made, "forever")


async def test_a_handler_knows_its_deadline():
    async with dialled() as (_, channel):
        left = channel.unary_unary("/t/Left")
        assert 50 < float(await left(b"", timeout=60)) < 61
        assert await left(b"") == b"None"


async def test_a_caller_that_leaves_ends_the_handler():
    async with dialled() as (made, channel):
        call = channel.unary_unary("/t/Forever")(b"")
        stream = channel.unary_stream("/t/Endless")(b"")
        assert len(await stream.read()) == 10_000
        await asyncio.sleep(0.05)
        call.cancel()
        stream.cancel()
        await ended(made, "forever")
        await ended(made, "endless")


async def test_a_connection_that_breaks_ends_its_handlers():
    async with running() as made:
        async with grpc.aio.insecure_channel(made.target) as channel:
            call = channel.unary_unary("/t/Forever")(b"")
            await asyncio.sleep(0.1)
            assert made.service.ended == []
        await ended(made, "forever")
        assert call.cancelled()


async def test_a_slow_reader_holds_up_its_stream_alone():
    async with dialled() as (made, channel):
        slow = channel.unary_stream("/t/Endless")(b"")
        await slow.read()
        last = -1
        while made.service.sends != last:
            last = made.service.sends
            await asyncio.sleep(0.2)
        assert last < 5000
        got = [reply async for reply in channel.unary_stream("/t/Count")(b"500", timeout=30)]
        assert len(got) == 500
        slow.cancel()


async def test_a_slow_handler_holds_up_its_caller():
    async with dialled(stream_window_bytes=65_535) as (made, channel):
        call = channel.stream_unary("/t/SlowReader")()
        written = 0

        async def write():
            nonlocal written
            while True:
                await call.write(bytes(20_000))
                written += 1

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.5)
        assert written - made.service.reads < 20
        assert await channel.unary_unary("/t/Echo")(b"on", timeout=30) == b"on"
        writing.cancel()
        call.cancel()


async def test_metadata_in_order_and_by_name():
    async with dialled() as (_, channel):
        metadata = (("a", "1"), ("b-bin", b"\x00\xff,"), ("a", "2"), ("authorization", "Bearer abc"))
        told = (await channel.unary_unary("/t/Who")(b"", metadata=metadata, timeout=30)).decode()
        pairs, token, none, address, path = eval(told)
        told = sorted((pair for pair in pairs if pair[0] != "user-agent"), key=lambda pair: pair[0])
        assert told == sorted(metadata, key=lambda pair: pair[0])
        assert (token, none, address, path) == ("Bearer abc", None, "127.0.0.1", "/t/Who")


@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_messages(how):
    async with running() as made, grpc.aio.insecure_channel(made.target, compression=how) as channel:
        assert await channel.unary_unary("/t/Echo")(bytes(100_000), timeout=30) == bytes(100_000)
        assert await channel.stream_unary("/t/Join")(iter([bytes(9000)] * 9), timeout=30) == b"9 81000"


async def test_many_calls_at_a_time_beyond_what_one_connection_may():
    async with dialled(streams_max=20) as (made, channel):
        calls = [channel.unary_unary("/t/Upper")(str(number).encode(), timeout=60) for number in range(500)]
        assert [await call for call in calls] == [str(number).encode() for number in range(500)]
        assert made.server.shared.tally["reset_REFUSED_STREAM"] == 0


async def test_keepalive_pings_are_welcome():
    options = [("grpc.keepalive_time_ms", 100), ("grpc.keepalive_permit_without_calls", 1)]
    options += [("grpc.http2.max_pings_without_data", 0)]
    async with running() as made, grpc.aio.insecure_channel(made.target, options=options) as channel:
        assert await channel.unary_unary("/t/Echo")(b"a", timeout=30) == b"a"
        await asyncio.sleep(0.6)
        assert await channel.unary_unary("/t/Echo")(b"b", timeout=30) == b"b"
        assert made.server.shared.tally["connections"] == 1


async def test_a_stop_lets_calls_end_and_begins_no_other():
    made = Running()
    made.port = await made.server.start("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(made.target) as channel:
        under_way = channel.stream_unary("/t/Join")(timeout=30)
        await under_way.write(b"abc")
        await asyncio.sleep(0.1)
        stopping = asyncio.create_task(made.server.stop(20))
        await asyncio.sleep(0.1)
        assert not stopping.done()
        await under_way.done_writing()
        assert await under_way == b"1 3"
        await asyncio.wait_for(stopping, 10)
        assert (await failure(channel.unary_unary("/t/Echo")(b"", timeout=5)))[0] is grpc.StatusCode.UNAVAILABLE
    await made.server.stop()


async def test_a_stop_cancels_what_outlasts_its_grace():
    made = Running()
    made.port = await made.server.start("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(made.target) as channel:
        call = channel.unary_unary("/t/Forever")(b"")
        await asyncio.sleep(0.1)
        await asyncio.wait_for(made.server.stop(0.1), 10)
        assert (await failure(call))[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert made.service.ended == ["forever"]


async def test_the_blocking_client_from_many_threads():
    async with running() as made:

        def work(found: list) -> None:
            with grpc.insecure_channel(made.target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                echo = channel.unary_unary("/t/Echo")
                found += [echo(str(number).encode(), timeout=60) == str(number).encode() for number in range(100)]
                found.append(len(list(channel.unary_stream("/t/Count")(b"300", timeout=60))) == 300)
                found.append(channel.stream_unary("/t/Join")(iter([b"ab"] * 40), timeout=60) == b"40 80")
                sent = [b"x" * 1000] * 40
                found.append(
                    list(channel.stream_stream("/t/Back")(iter(sent), timeout=60)) == [one + b"!" for one in sent]
                )

        found: list[bool] = []
        await asyncio.gather(*(asyncio.to_thread(work, found) for _ in range(4)))
        assert found == [True] * 412
        assert made.faults == []
