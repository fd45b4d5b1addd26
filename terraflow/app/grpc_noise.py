"""gRPC's own lines on standard error, switched off: what went wrong with a call is told by who made it.

Its core reads the variable when it is first imported, so `quiet_grpc` comes before that. Who sets it wants the lines.
"""

from __future__ import annotations

import os


def quiet_grpc() -> None:
    """Have gRPC's core write nothing, unless the environment says what it shall write."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
