"""Files while they are there, and those whose bytes are not all there any more: a part of one never looks like all of
it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import openai
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


def test_a_file_may_expire_before_the_planes_own_time(launch: Launch, tmp_path: Path) -> None:
    site = launch(NIGHT, answer_key_file=answer_key(tmp_path / "key"))
    asked: Any = {"file": ("asked.jsonl", joined([line("a")])), "purpose": "batch"}
    with openai.OpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, max_retries=0, timeout=20) as client:
        kept = client.files.create(**asked)
        brief = client.files.create(**asked, expires_after={"anchor": "created_at", "seconds": 3_600})
        assert brief.expires_at == brief.created_at + 3_600
        assert kept.expires_at is not None and kept.expires_at > brief.expires_at
        assert client.files.retrieve(brief.id) == brief
        wrong: list[tuple[Any, str]] = [
            ({"anchor": "created_at", "seconds": 3_599}, "seconds"),
            ({"anchor": "created_at", "seconds": kept.expires_at - kept.created_at + 1}, "seconds"),
            ({"anchor": "created_at", "seconds": "1e4"}, "seconds"),
            ({"anchor": "created_at"}, "seconds"),
            ({"anchor": "last_active_at", "seconds": 3_600}, "anchor"),
            ({"seconds": 3_600}, "anchor"),
        ]
        for expiry, field in wrong:
            with pytest.raises(openai.BadRequestError) as met:
                client.files.create(**asked, expires_after=expiry)
            assert met.value.param == f"expires_after.{field}"
