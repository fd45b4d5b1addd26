"""Health and reflection by the clients of grpcio's own packages."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from terraflow.hints.http2.health import Health
from terraflow.hints.http2.methods import Inline
from terraflow.hints.http2.reflection import V1, V1ALPHA, Reflection
from terraflow.hints.http2.server import Server
from terraflow.hints.wire import inferencecache_pb2

SERVICE = inferencecache_pb2.DESCRIPTOR.services_by_name["InferenceCache"].full_name
LOOKUP = inferencecache_pb2.LookupRouteRequest.FromString, inferencecache_pb2.LookupRouteResponse.SerializeToString
STATES = health_pb2.HealthCheckResponse


def lookup(request, _):
    return inferencecache_pb2.LookupRouteResponse(adapter_id=request.adapter_id)


@asynccontextmanager
async def served():
    health = Health()
    reflection = Reflection([SERVICE, "grpc.health.v1.Health"])
    methods = {**health.methods(), **reflection.methods(), f"/{SERVICE}/LookupRoute": Inline(lookup, *LOOKUP)}
    server = Server(methods)
    port = await server.start("127.0.0.1", 0)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield health, channel, port
    finally:
        await server.stop(0.2)


async def test_check_and_list():
    async with served() as (health, channel, _):
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == STATES.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        health.set(SERVICE, True)
        health.set("", False)
        listed = await stub.List(health_pb2.HealthListRequest())
        assert {name: state.status for name, state in listed.statuses.items()} == {
            "": STATES.NOT_SERVING,
            SERVICE: STATES.SERVING,
        }


async def test_watch_tells_every_change_and_the_stop():
    async with served() as (health, channel, _):
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        told = [(await watching.read()).status]
        for act in (lambda: health.set(SERVICE, True), lambda: health.set(SERVICE, False)):
            act()
            told.append((await watching.read()).status)
        health.set(SERVICE, True)
        told.append((await watching.read()).status)
        health.stop()
        told.append((await watching.read()).status)
        assert told == [
            STATES.SERVICE_UNKNOWN,
            STATES.SERVING,
            STATES.NOT_SERVING,
            STATES.SERVING,
            STATES.NOT_SERVING,
        ]
        watching.cancel()


async def test_a_tool_that_knows_nothing_lists_describes_and_calls():
    async with served() as (_, _, port):

        def tool() -> tuple[list[str], str]:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                database = ProtoReflectionDescriptorDatabase(channel)
                pool = descriptor_pool.DescriptorPool(database)
                method = pool.FindServiceByName(SERVICE).methods_by_name["LookupRoute"]
                request, reply = (
                    message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type)
                )
                invoke = channel.unary_unary(f"/{SERVICE}/LookupRoute", request.SerializeToString, reply.FromString)
                return list(database.get_services()), invoke(request(adapter_id="lora"), timeout=20).adapter_id

        services, answered = await asyncio.to_thread(tool)
        assert services == sorted([SERVICE, "grpc.health.v1.Health", V1, V1ALPHA])
        assert answered == "lora"


ASKED = {
    "list": (reflection_pb2.ServerReflectionRequest(list_services="*"), "list_services_response"),
    "file": (
        reflection_pb2.ServerReflectionRequest(file_by_filename=inferencecache_pb2.DESCRIPTOR.name),
        "file_descriptor_response",
    ),
    "symbol": (
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=f"{SERVICE}.LookupRoute"),
        "file_descriptor_response",
    ),
    "its own symbol": (reflection_pb2.ServerReflectionRequest(file_containing_symbol=V1), "file_descriptor_response"),
    "numbers": (
        reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type="inferencecache.v1alpha1.Ack"),
        "all_extension_numbers_response",
    ),
    "unknown file": (reflection_pb2.ServerReflectionRequest(file_by_filename="none.proto"), "error_response"),
    "unknown symbol": (reflection_pb2.ServerReflectionRequest(file_containing_symbol="a.B"), "error_response"),
    "a symbol that is not served": (
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="google.protobuf.FileDescriptorProto"),
        "error_response",
    ),
    "unknown type": (reflection_pb2.ServerReflectionRequest(all_extension_numbers_of_type="a.B"), "error_response"),
    "extension": (
        reflection_pb2.ServerReflectionRequest(
            file_containing_extension=reflection_pb2.ExtensionRequest(
                containing_type="inferencecache.v1alpha1.Ack", extension_number=7
            )
        ),
        "error_response",
    ),
}


@pytest.mark.parametrize("version,name", list(itertools.product((V1, V1ALPHA), ASKED)))
async def test_what_is_asked_is_answered(version, name):
    asked, kind = ASKED[name]
    async with served() as (_, channel, _):
        info = channel.stream_stream(
            f"/{version}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        (answer,) = [answer async for answer in info(iter([asked]), timeout=20)]
        assert answer.WhichOneof("message_response") == kind
        assert answer.original_request == asked


async def test_a_question_that_asks_nothing():
    async with served() as (_, channel, _):
        info = channel.stream_stream(f"/{V1}/ServerReflectionInfo")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            assert [answer async for answer in info(iter([b""]), timeout=20)]
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
