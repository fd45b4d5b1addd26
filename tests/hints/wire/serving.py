"""Any object as a server of the contract on grpcio."""

from __future__ import annotations

import grpc

from terraflow.hints.wire.stub import CALLS, SERVICE


def handler(served: object) -> grpc.GenericRpcHandler:
    """Those calls of the contract that `served` has a method of the same name for; any other is UNIMPLEMENTED."""
    handlers = {}
    for name, call in CALLS.items():
        answer = getattr(served, name, None)
        if answer is not None:
            make = getattr(grpc, f"{call.shape}_rpc_method_handler")
            handlers[name] = make(answer, call.request.FromString, call.reply.SerializeToString)
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)
