"""Who may call what: a call's caller, and the streams that may be open.

1. A reader with a bad token sees nothing and is never refused; a producer with one is UNAUTHENTICATED.
2. A producer without an identity, where one is needed, is UNAUTHENTICATED; one that speaks of what is not its own is
   PERMISSION_DENIED.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from terraflow.hints.http2.call import Call
from terraflow.hints.http2.status import GrpcError, Status
from terraflow.hints.service.identity import NOBODY, Caller, Identities, TokenInvalid, names_of
from terraflow.hints.service.metrics import Metrics
from terraflow.ports.runtime import Clock


class Access:
    """The identities of a service, and its bounds on streams. What is refused is counted, by cause."""

    def __init__(
        self, identities: Identities, metrics: Metrics, clock: Clock, report_streams_max: int, watch_streams_max: int
    ) -> None:
        self._identities = identities
        self._metrics = metrics
        self._clock = clock
        self._streams_max = {"reports": report_streams_max, "events": watch_streams_max, "metrics": watch_streams_max}

    def _caller(self, call: Call) -> Caller:
        authorization = call.get("authorization")
        certificate = call.peer.certificate
        if authorization is None and certificate is None:
            return self._identities.anonymous
        if isinstance(authorization, bytes):
            raise TokenInvalid("the authorization header is not text")
        names = () if certificate is None else names_of(certificate)
        return self._identities.caller(authorization, names, self._clock.now() / 1e6)

    def reader(self, call: Call) -> Caller:
        """Who asks. Never raises."""
        try:
            return self._caller(call)
        except TokenInvalid:
            self._metrics.refused["token"] += 1
            return NOBODY

    def producer(self, call: Call) -> Caller:
        """Who reports. Raises GrpcError for whoever may report nothing at all."""
        try:
            caller = self._caller(call)
        except TokenInvalid as error:
            self._metrics.refused["token"] += 1
            raise GrpcError(Status.UNAUTHENTICATED, str(error)) from None
        if caller.produces:
            return caller
        self._metrics.refused["no_producer"] += 1
        if caller.known:
            raise GrpcError(Status.PERMISSION_DENIED, "this identity may read, and report for no replica")
        raise GrpcError(Status.UNAUTHENTICATED, "producers need a client certificate or a token")

    def admit(self, caller: Caller, tenant: str, replica: str) -> None:
        """Raises GrpcError unless the caller may report for this tenant and replica."""
        if not caller.may_report(tenant, replica):
            self._metrics.refused["foreign"] += 1
            raise GrpcError(Status.PERMISSION_DENIED, "this identity may not report for that tenant and replica")

    @contextmanager
    def open_stream(self, kind: str) -> Iterator[None]:
        """A place for a stream: `reports`, `events` or `metrics`. Raises GrpcError when all are taken."""
        opened, most = self._metrics.streams_open, self._streams_max[kind]
        if opened[kind] >= most:
            self._metrics.refused["streams"] += 1
            raise GrpcError(Status.RESOURCE_EXHAUSTED, f"there are {most} streams of this kind already")
        opened[kind] += 1
        try:
            yield
        finally:
            opened[kind] -= 1
