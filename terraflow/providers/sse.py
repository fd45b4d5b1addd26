"""Server-sent events, taken apart as they arrive.

1. Any split of the same bytes gives the same events (WHATWG HTML, "Server-sent events"): lines end in LF, CR LF or
   CR, a byte order mark at the start is skipped, `data` lines are joined by LF, an event without data is none.
2. Only `data` is kept: both vendors repeat the event's name inside it. Comments, `id` and `retry` are skipped.
3. The cost is linear in the bytes, whatever they are: no byte is looked at again when the next read arrives.
4. What may be held is bounded: more than `event_bytes_max` without an end of an event raises `EventTooLarge`,
   comments and unknown fields counted, so that a stream that never says anything ends too.
5. An event whose blank line is missing when the stream ends is none to the standard; `rest` gives its data to those who
   can tell from it that it is whole.
6. A CR that ends a read is held until the next byte tells whether an LF follows.
"""

from __future__ import annotations

EVENT_BYTES_MAX = 4 * 1024 * 1024
"""Larger than any one event of a vendor (a tool call's arguments in one piece, an image), smaller than what
hurts."""

_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """A line or an event is longer than the bound."""


class EventParser:
    """Bytes in, the `data` of whole events out."""

    __slots__ = ("_data", "_held", "_idle_bytes", "_limit", "_started")

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._limit = event_bytes_max
        self._held = bytearray()
        """The beginning of a line whose end has not arrived."""
        self._data: list[bytes] = []
        """The data lines of an event whose end has not arrived."""
        self._idle_bytes = 0
        """Bytes of whole lines since the last event."""
        self._started = False

    def feed(self, received: bytes) -> list[bytes]:
        """The data of every event that `received` completes, oldest first. Raises EventTooLarge."""
        held = self._held
        if b"\r" in received or (held and held[-1] == 13):
            received = self._without_cr(received)
        end = received.rfind(b"\n")
        if end < 0:
            held += received
            if len(held) + self._idle_bytes > self._limit:
                raise EventTooLarge
            return []
        if held:
            held += received[:end]
            block = bytes(held)
        else:
            block = received[:end]
        self._held = bytearray(received[end + 1 :])
        if not self._started:
            self._started = True
            block = block.removeprefix(_BOM)
        events = self._events(block)
        if self._idle_bytes + len(self._held) > self._limit:
            raise EventTooLarge
        return events

    def rest(self) -> bytes:
        """The data of the event that has begun and not ended, empty for none; nothing is held any more."""
        if self._held:
            self._events(bytes(self._held).rstrip(b"\r"))
        data = b"\n".join(self._data)
        self._held.clear()
        self._data.clear()
        return data

    def _without_cr(self, received: bytes) -> bytes:
        """The same lines, each ended by LF; a CR at the very end stays held."""
        if self._held and self._held[-1] == 13:
            del self._held[-1]
            received = b"\r" + received
        last = b"\r" if received.endswith(b"\r") else b""
        whole = received[: len(received) - len(last)]
        return whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + last

    def _events(self, block: bytes) -> list[bytes]:
        events: list[bytes] = []
        data = self._data
        for line in block.split(b"\n"):
            if line.startswith(b"data:"):
                data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._idle_bytes += len(line) + 1
            elif line:
                if line == b"data":
                    data.append(b"")
                self._idle_bytes += len(line) + 1
            elif data:
                self._over(self._idle_bytes)
                events.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
                self._idle_bytes = 0
            else:
                self._idle_bytes += 1
        return events

    def _over(self, size: int) -> None:
        if size > self._limit:
            raise EventTooLarge
