"""The contract's calls as the .proto has them, and a client of them on a channel that is given.

1. Nothing is written down a second time: names, shapes and messages are read from the descriptor that protoc made.
2. No gRPC is imported: whoever makes the channel has it, blocking (`grpc`) or not (`grpc.aio`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from terraflow.hints.wire import inferencecache_pb2 as pb

if TYPE_CHECKING:
    import grpc
    import grpc.aio

SERVICE = pb.DESCRIPTOR.services_by_name["InferenceCache"]


class ContractCall(NamedTuple):
    """One call: its path on the wire, its shape by grpcio's name for it (`unary_stream`), and its messages."""

    path: str
    shape: str
    request: type[Message]
    reply: type[Message]


def _call(method: MethodDescriptor) -> ContractCall:
    asked, answered = ("stream" if many else "unary" for many in (method.client_streaming, method.server_streaming))
    return ContractCall(
        path=f"/{SERVICE.full_name}/{method.name}",
        shape=f"{asked}_{answered}",
        request=GetMessageClass(method.input_type),
        reply=GetMessageClass(method.output_type),
    )


CALLS = {method.name: _call(method) for method in SERVICE.methods}


class Stub(SimpleNamespace):
    """Each of CALLS by its name (`stub.LookupRoute(request, timeout=…)`), as the channel makes it."""

    def __init__(self, channel: grpc.Channel | grpc.aio.Channel) -> None:
        super().__init__(
            **{
                name: getattr(channel, call.shape)(call.path, call.request.SerializeToString, call.reply.FromString)
                for name, call in CALLS.items()
            }
        )
