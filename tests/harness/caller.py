"""An application that calls the plane over plain HTTP, and reads what was recorded of its requests.

Every text it sends and every key it names holds `CANARY`, which must appear nowhere but in what a model was sent.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.harness.mouths import CHAT as CHAT_MOUTH
from tests.harness.mouths import Mouth
from tests.harness.plane import Plane

CANARY = "canary-3e9d1c70"
CHAT = CHAT_MOUTH.path
WAIT_S = 10.0

Json = dict[str, Any]


def until(condition: Callable[[], object], within_s: float = WAIT_S) -> None:
    """Wait until something holds; fails if it does not in time."""
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends, f"{condition} did not come to hold within {within_s} s"
        time.sleep(0.005)


def body_of(text: str = "Hello", **fields: Any) -> Json:
    """A chat body with one user message."""
    return {"messages": [{"role": "user", "content": f"{text} {CANARY}"}]} | fields


def headers_of(
    workload: str | None = None,
    *,
    key: str | None = None,
    data_class: str | None = None,
    types: str | None = None,
    deadline_ms: int | None = None,
    run: str | None = None,
    run_budget: str | None = None,
) -> dict[str, str]:
    """The plane's own headers, those that are given; `key` is an idempotency key."""
    named = {
        "X-TerraFlow-Workload": workload,
        "Idempotency-Key": None if key is None else f"{key} {CANARY}",
        "X-TerraFlow-Data-Class": data_class,
        "X-TerraFlow-Sensitive-Types": types,
        "X-TerraFlow-Deadline-Ms": None if deadline_ms is None else str(deadline_ms),
        "X-TerraFlow-Run-Id": run,
        "X-TerraFlow-Run-Budget-Usd": run_budget,
    }
    return {name: value for name, value in named.items() if value is not None}


class Caller:
    """One application with one API key. It asks in the shape of `mouth`, and keeps an idempotency key for each."""

    mouth: Mouth = CHAT_MOUTH

    def __init__(self, plane: Plane, api_key: str) -> None:
        self.plane = plane
        self.api_key = api_key
        self._http = httpx2.Client(timeout=20.0, limits=httpx2.Limits(max_connections=64, max_keepalive_connections=16))

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    @property
    def authorization(self) -> dict[str, str]:
        """The header that says who calls."""
        return {"Authorization": f"Bearer {self.api_key}"}

    def ask(
        self, workload: str | None = None, text: str = "Hello", *, headers: dict[str, str] | None = None, **fields: Any
    ) -> httpx2.Response:
        """One request, `fields` in its chat body; `headers` instead of the workload's alone."""
        sent = headers_of(workload) | (headers or {})
        return self.post(self.mouth.asks(body_of(text, **fields)), self._keyed(sent), self.mouth.path)

    def _keyed(self, headers: dict[str, str]) -> dict[str, str]:
        key = headers.get("Idempotency-Key")
        return headers if key is None else headers | {"Idempotency-Key": f"{key} {self.mouth.name}"}

    def post(self, body: Json | bytes, headers: dict[str, str] | None = None, path: str = CHAT) -> httpx2.Response:
        """Any body, to any path under the base URL."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = self.authorization | {"Content-Type": "application/json"} | (headers or {})
        return self._http.post(self.plane.base_url + path, content=raw, headers=head)

    def post_pieces(self, pieces: Iterator[bytes]) -> httpx2.Response:
        """A chat body sent in chunks, without its length."""
        head = self.authorization | {"Content-Type": "application/json"}
        return self._http.post(self.plane.base_url + CHAT, content=pieces, headers=head)

    def get(self, path: str, *, root: bool = False) -> httpx2.Response:
        """A read; `root` when the path is not below the base URL."""
        base = self.plane.base_url.removesuffix("/v1") if root else self.plane.base_url
        return self._http.get(base + path, headers=self.authorization)

    def cancel(self, request_id: str) -> httpx2.Response:
        """Cancel a request by its id."""
        return self._http.delete(f"{self.plane.base_url}/requests/{request_id}", headers=self.authorization)

    @contextmanager
    def stream(self, workload: str, text: str = "Hello", **fields: Any) -> Iterator[Streamed]:
        """A streamed request; leaving the block closes the connection."""
        declared = self._keyed(headers_of(workload) | fields.pop("headers", {}))
        head = self.authorization | {"Content-Type": "application/json"} | declared
        raw = json.dumps(self.mouth.asks(body_of(text, stream=True, **fields))).encode()
        url = self.plane.base_url + self.mouth.path
        with self._http.stream("POST", url, content=raw, headers=head) as response:
            yield Streamed(response)

    def leave(self, ready: Callable[[], object], headers: dict[str, str] | None = None, **fields: Any) -> str:
        """Send a chat request, close the connection once it is `ready` and before anything came back, and give the
        request's id when its outcome is recorded; no other request may end meanwhile."""
        before = self._ended()
        self._send_and_leave(ready, headers or {}, fields)
        until(lambda: self._ended() - before)
        [request_id] = self._ended() - before
        return request_id

    def leave_queue(self, headers: dict[str, str] | None = None) -> str:
        """The same for a request that waits in the plane, which nothing outside shows: a caller that leaves before its
        body was read leaves nothing, and is sent again with more time."""
        before = self._ended()
        for pause_s in (0.1, 0.5, 2.0, 5.0):
            self._send_and_leave(lambda pause_s=pause_s: time.sleep(pause_s) or True, headers or {}, {})
            time.sleep(pause_s)
            if self._ended() - before:
                break
        [request_id] = self._ended() - before
        return request_id

    def _send_and_leave(self, ready: Callable[[], object], headers: dict[str, str], fields: Json) -> None:
        lines = [f"{name}: {value}" for name, value in (self.authorization | self._keyed(headers)).items()]
        raw = json.dumps(self.mouth.asks(body_of(**fields))).encode()
        place = urlsplit(self.plane.base_url)
        with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
            connection.sendall(request_bytes(lines, raw, f"/v1{self.mouth.path}"))
            until(ready)

    def _ended(self) -> set[str]:
        rows = self.plane.folder.rows("SELECT request_id FROM leaf WHERE kind = 'outcome'")
        return {request_id for (request_id,) in rows}

    def evidence(self, request_id: str, *, within_s: float = WAIT_S) -> Json:
        """The record of a request, once its outcome is there."""
        ends = time.monotonic() + within_s
        while True:
            response = self.get(f"/evidence/{request_id}")
            if response.status_code == 200:
                found: Json = response.json()
                if found["outcome"] is not None:
                    return found
            assert time.monotonic() < ends, f"no outcome of {request_id} within {within_s} s: {response.text}"
            time.sleep(0.01)


class Streamed:
    """A streamed answer as it arrives."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.request_id = response.headers["x-terraflow-request-id"]
        self._lines = response.iter_lines()

    def events(self) -> Iterator[str]:
        """The data of each event, `[DONE]` among them; that of a named event says its name as `type`."""
        name = None
        for line in self._lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line:
                assert line.startswith("data: "), line
                data = line.removeprefix("data: ")
                assert name is None or json.loads(data)["type"] == name
                yield data
                name = None

    def rest(self) -> list[str]:
        """All events that are still to come."""
        return list(self.events())


def content_of(events: list[str]) -> str:
    """The text of a stream's events."""
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    return "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk.get("choices", ()))


class RawReply:
    """A response to bytes that no HTTP library would send. Headers are in lower case."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}


def request_bytes(lines: Sequence[str], body: bytes = b"", path: str = f"/v1{CHAT}", *, method: str = "POST") -> bytes:
    """A request with header lines of any kind, before the three that it needs."""
    needed = ["Host: plane", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, *needed, "", ""]).encode("latin-1") + body


def raw_request(plane: Plane, raw: bytes, *, shut: bool = False) -> RawReply | None:
    """Send bytes, and read until the plane closes or has sent a whole body; None when it closed without a word."""
    place = urlsplit(plane.base_url)
    with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
        connection.sendall(raw)
        if shut:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while not _whole(received):
            try:
                piece = connection.recv(65_536)
            except ConnectionResetError:
                break
            if not piece:
                break
            received += piece
    return RawReply(received) if received else None


def _whole(received: bytes) -> bool:
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return False
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(lengths) and len(body) >= int(lengths[0].split(b":")[1])
