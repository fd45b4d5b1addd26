"""`grpc.health.v1`: whether each service serves, asked once, watched, or listed.

The empty name is the server as a whole. A service that nobody set is NOT_FOUND to Check, and SERVICE_UNKNOWN to Watch,
which goes on and tells when that changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpc_health.v1 import health_pb2

from terraflow.hints.http2.call import Call
from terraflow.hints.http2.methods import Inline, Methods, ServerStream
from terraflow.hints.http2.status import GrpcError, Status

_SERVICE = "/grpc.health.v1.Health/"
_STATES = health_pb2.HealthCheckResponse


class Health:
    """The states that are told; changed on the event loop's thread."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {"": True}
        self._changed = asyncio.Event()

    def set(self, service: str, serving: bool) -> None:
        """From now on this is so; watchers are told."""
        if self._serving.get(service) is not serving:
            self._serving[service] = serving
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def stop(self) -> None:
        """Nothing serves any more."""
        for service in list(self._serving):
            self.set(service, False)

    def _state(self, service: str) -> Any:
        serving = self._serving.get(service)
        status = _STATES.SERVICE_UNKNOWN if serving is None else _STATES.SERVING if serving else _STATES.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=status)

    def _check(self, request: Any, _: Call) -> Any:
        if request.service not in self._serving:
            raise GrpcError(Status.NOT_FOUND, "the service is unknown")
        return self._state(request.service)

    async def _watch(self, request: Any, _: Call) -> AsyncIterator[Any]:
        told = None
        while True:
            changed, state = self._changed, self._state(request.service)
            if state != told:
                told = state
                yield state
            await changed.wait()

    def _list(self, _: Any, __: Call) -> Any:
        return health_pb2.HealthListResponse(statuses={service: self._state(service) for service in self._serving})

    def methods(self) -> Methods:
        """The rows for a server's table."""
        asked = health_pb2.HealthCheckRequest.FromString
        serialize = health_pb2.HealthCheckResponse.SerializeToString
        listed, list_ = health_pb2.HealthListRequest.FromString, health_pb2.HealthListResponse.SerializeToString
        return {
            _SERVICE + "Check": Inline(self._check, asked, serialize),
            _SERVICE + "Watch": ServerStream(self._watch, asked, serialize),
            _SERVICE + "List": Inline(self._list, listed, list_),
        }
