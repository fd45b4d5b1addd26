"""What a caller sends over a connection, byte by byte, and a refusal as it hears it."""

from __future__ import annotations

from tests.harness.edge import Heard

HOST = b"Host: plane\r\n"


def get(path: str = "/a", *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    return f"{method} {path} HTTP/{version}\r\n".encode() + HOST + "".join(f"{x}\r\n" for x in lines).encode() + b"\r\n"


def post(body: bytes, path: str = "/a", *lines: str) -> bytes:
    return get(path, f"Content-Length: {len(body)}", *lines, method="POST") + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", path: str = "/a") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + end
    return get(path, "Transfer-Encoding: chunked", method="POST") + body


def refused(heard: Heard, field: str) -> None:
    assert heard.status == 400
    assert heard.headers["content-type"] == "application/json"
    assert heard.headers["connection"] == "close"
    assert heard.headers["x-should-retry"] == "false"
    said = heard.json
    assert said["error"]["code"] == "INVALID_REQUEST"
    assert said["terraflow"]["details"]["problems"][0]["field"] == field
