"""Files whose bytes are not all there any more: a part of one never looks like all of it."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from terraflow.core.reasons import ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.batches import CHAT, answer_key, joined, line
from tests.harness.bundle import purpose, sim
from tests.harness.checks import Checks

NIGHT = bundle.document(purpose("night", sim("a"), priority=3))


def uploaded(site: Site, data: bytes) -> str:
    """The id of a file."""
    form = {"files": {"file": ("a.jsonl", data)}, "data": {"purpose": "batch"}}
    response = httpx2.post(f"{site.plane.base_url}/files", headers=site.caller.authorization, **form)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


def test_a_file_that_is_erased_while_it_is_read_does_not_look_whole(launch: Launch) -> None:
    site = launch(NIGHT)
    data = b"x" * 24 * 1024 * 1024
    file_id = uploaded(site, data)
    url, read = f"{site.plane.base_url}/files/{file_id}/content", 0
    with httpx2.stream("GET", url, headers=site.caller.authorization) as response:
        assert response.status_code == 200
        pieces = response.iter_bytes()
        read += len(next(pieces))
        assert httpx2.delete(url.removesuffix("/content"), headers=site.caller.authorization).status_code == 200
        with pytest.raises(httpx2.RemoteProtocolError):
            for piece in pieces:
                read += len(piece)
    assert read < len(data)


def test_a_file_that_does_not_open_any_more_is_none(launch: Launch, tmp_path: Path, checks: Checks) -> None:
    site = launch(NIGHT, answer_key_file=answer_key(tmp_path / "key"))
    file_id = uploaded(site, joined([line("a")]))
    answer_key(tmp_path / "key")
    site.plane.restart()
    checks.ungoverned(site.caller.get(f"/files/{file_id}/content"), ModelApi.NOT_FOUND)
    body = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
    checks.ungoverned(site.caller.post(body, path="/batches"), ModelApi.INVALID_REQUEST, field="input_file_id")
