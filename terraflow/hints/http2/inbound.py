"""What each frame of a peer does, as a table by its type.

1. A frame that breaks the protocol is a ConnectionFault; one that breaks only its stream is a StreamFault.
2. A frame that makes work without being a call takes a token of its kind (`limits.BUCKETS`).
3. A type that is not here means nothing, and takes a token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from terraflow.hints.http2 import control, requests
from terraflow.hints.http2.frames import (
    CONTINUATION,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
)

if TYPE_CHECKING:
    from terraflow.hints.http2.connection import Connection

FRAMES: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    DATA: requests.on_data,
    HEADERS: requests.on_headers,
    PRIORITY: control.on_priority,
    RST_STREAM: control.on_rst_stream,
    SETTINGS: control.on_settings,
    PUSH_PROMISE: control.on_push_promise,
    PING: control.on_ping,
    GOAWAY: control.on_goaway,
    WINDOW_UPDATE: control.on_window_update,
    CONTINUATION: requests.on_continuation,
}
