"""A caller of batches: their lines, as they are given and as they come back."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.harness.caller import CANARY, Caller, Json, body_of, until

CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def line(custom_id: str, workload: str | None = "night", text: str = "Hello", url: str = CHAT, **fields: Any) -> Json:
    """One line: a chat request under a name of the caller's."""
    body = body_of(text, **fields) | ({} if workload is None else {"model": workload})
    return {"custom_id": f"{custom_id} {CANARY}", "method": "POST", "url": url, "body": body}


def joined(lines: Iterable[Json | bytes]) -> bytes:
    """Lines as they are sent."""
    return b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)


def create(caller: Caller, *lines: Json | bytes, headers: dict[str, str] | None = None) -> Any:
    """The response to the lines, given inline."""
    return caller.post(joined(lines), {"Content-Type": "application/jsonl"} | (headers or {}), "/batches")


def made(caller: Caller, *lines: Json | bytes, headers: dict[str, str] | None = None) -> Json:
    """The batch of these lines."""
    response = create(caller, *lines, headers=headers)
    assert response.status_code == 200, response.text
    batch: Json = response.json()
    return batch


def now(caller: Caller, batch: Json) -> Json:
    """The batch as it stands."""
    response = caller.get(f"/batches/{batch['id']}")
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def ended(caller: Caller, batch: Json, status: str = "completed", within_s: float = 20.0) -> Json:
    """The batch once it has ended, as it should."""
    until(lambda: now(caller, batch)["status"] in ENDED, within_s)
    found = now(caller, batch)
    assert found["status"] == status
    return found


def results(caller: Caller, batch: Json) -> dict[str, Json]:
    """Every line of an ended batch by its custom_id; each name is there once, and in the file of its kind."""
    found: dict[str, Json] = {}
    for field in ("output_file_id", "error_file_id"):
        for result in lines_of(caller, batch[field]):
            assert set(result) == {"id", "custom_id", "response", "error"}
            assert result["custom_id"] not in found
            good = result["response"] is not None and result["response"]["status_code"] < 400
            assert good is (field == "output_file_id")
            found[result["custom_id"].removesuffix(f" {CANARY}")] = result
    return found


def lines_of(caller: Caller, file_id: str | None) -> list[Json]:
    """The lines of a file of results, which has as many bytes as it says."""
    if file_id is None:
        return []
    content = caller.get(f"/files/{file_id}/content")
    assert content.status_code == 200, content.text
    assert content.headers["content-type"] == "application/jsonl"
    file = caller.get(f"/files/{file_id}").json()
    assert (file["object"], file["purpose"], file["bytes"]) == ("file", "batch_output", len(content.content))
    return [json.loads(each) for each in content.content.splitlines()]


def answer_key(path: Path) -> Path:
    """A file with a key that seals what is stored."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64encode(os.urandom(32)))
    path.chmod(0o600)
    return path
