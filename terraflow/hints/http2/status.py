"""How a call ends: gRPC's status codes, and the error that a service raises."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """gRPC's codes, by their numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """Ends a call with this status; the caller reads the message, so it holds nothing secret."""

    def __init__(self, status: Status, message: str = "") -> None:
        super().__init__(status.name, message)
        self.status = status
        self.message = message
