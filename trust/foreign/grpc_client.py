"""A gRPC client that needs nothing but some version of grpcio: calls of every shape and ending, against one address.

    python grpc_client.py ADDRESS

Prints one line a check that failed, and exits with 1 if there was one. Messages are bytes, so that no generated code
ties it to a version of protobuf.
"""

import asyncio
import sys
import threading

import grpc

MIB = 1024 * 1024


def status_of(call):
    """The code of a call that must fail."""
    try:
        call()
    except grpc.RpcError as failed:
        return failed.code().name
    return "OK"


def unary(channel):
    """Sizes from nothing to the bound."""
    echo = channel.unary_unary("/t/Echo")
    for size in (0, 1, 16000, 70000, 4 * MIB):
        assert echo(bytes(size), timeout=60) == bytes(size), size
    assert channel.unary_unary("/t/Upper")(b"abc", timeout=60) == b"ABC"


def streams(channel):
    """Requests, replies, and both."""
    join, count = channel.stream_unary("/t/Join"), channel.unary_stream("/t/Count")
    assert join(iter([b"ab"] * 500), timeout=60) == b"500 1000"
    assert join(iter([bytes(300000)] * 20), timeout=60) == b"20 6000000"
    assert len(list(count(b"2000", timeout=60))) == 2000
    assert list(channel.stream_stream("/t/Back")(iter([b"x" * 1000] * 50), timeout=60)) == [b"x" * 1000 + b"!"] * 50


def endings(channel):
    """Statuses, deadlines, sizes, unknown methods, leaving."""
    refused = channel.unary_unary("/t/Refused")
    for code in grpc.StatusCode:
        if code is not grpc.StatusCode.OK:
            number = str(code.value[0]).encode()
            assert status_of(lambda number=number: refused(number, timeout=60)) == code.name, code
    assert status_of(lambda: channel.unary_unary("/t/None")(b"", timeout=60)) == "UNIMPLEMENTED"
    assert status_of(lambda: channel.unary_unary("/t/Forever")(b"", timeout=0.2)) == "DEADLINE_EXCEEDED"
    assert status_of(lambda: channel.unary_unary("/t/Echo")(bytes(4 * MIB + 1), timeout=60)) == "RESOURCE_EXHAUSTED"
    endless = channel.unary_stream("/t/Endless")(b"")
    assert len(next(endless)) == 10000
    endless.cancel()
    forever = channel.unary_unary("/t/Forever").future(b"")
    forever.cancel()


def many(channel):
    """More calls at a time than the server lets one connection have."""
    echo = channel.unary_unary("/t/Upper")
    futures = [echo.future(str(number).encode(), timeout=60) for number in range(2000)]
    assert [future.result() for future in futures] == [str(number).encode() for number in range(2000)]


def threads(channel):
    """One channel, several threads."""
    echo, wrong = channel.unary_unary("/t/Echo"), []

    def work():
        wrong.extend(number for number in range(200) if echo(b"%d" % number, timeout=60) != b"%d" % number)

    running = [threading.Thread(target=work) for _ in range(8)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert wrong == []


def metadata(channel):
    """Text and binary."""
    sent = (("a", "1"), ("b-bin", b"\x00\xff"), ("authorization", "Bearer abc"))
    told = channel.unary_unary("/t/Who")(b"", metadata=sent, timeout=60).decode()
    assert "('a', '1')" in told and "b'\\x00\\xff'" in told and "'abc'" in told, told


async def asynchronous(address):
    """The same by grpc.aio."""
    async with grpc.aio.insecure_channel(address) as channel:
        echo = channel.unary_unary("/t/Echo")
        calls = [echo(b"%d" % number, timeout=60) for number in range(500)]
        assert [await call for call in calls] == [b"%d" % number for number in range(500)]
        count = channel.unary_stream("/t/Count")(b"300", timeout=60)
        assert len([reply async for reply in count]) == 300
        try:
            await channel.unary_unary("/t/Forever")(b"", timeout=0.2)
        except grpc.aio.AioRpcError as failed:
            assert failed.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        else:
            raise AssertionError("a call outlived its deadline")


def main(address):
    """Every check; how many failed."""
    keepalive = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_permit_without_calls", 1)]
    kinds = {"plain": {}, "gzip": {"compression": grpc.Compression.Gzip}, "keepalive": {"options": keepalive}}
    failed = 0
    for name, options in kinds.items():
        for check in (unary, streams, endings, many, threads, metadata):
            with grpc.insecure_channel(address, **options) as channel:
                try:
                    check(channel)
                except Exception as wrong:
                    failed += 1
                    print(f"{check.__name__}, {name}: {type(wrong).__name__}: {wrong}")
    try:
        asyncio.run(asynchronous(address))
    except Exception as wrong:
        failed += 1
        print(f"asynchronous: {type(wrong).__name__}: {wrong}")
    print(f"grpcio {grpc.__version__}: {failed} of {len(kinds) * 6 + 1} checks failed")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1]) else 0)
