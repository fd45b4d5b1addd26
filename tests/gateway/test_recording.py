"""What a plane records of a request is what a record says it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from terraflow.evidence import record
from tests.harness.bundle import document, purpose, sim
from tests.harness.inside import plane_inside

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize(
    ("content", "attached"), [("Hello", False), ([{"type": "text", "text": "Hello"}, IMAGE], True)]
)
async def test_records_are_read_back_as_their_type(content: Any, attached: bool, tmp_path: Path) -> None:
    async with plane_inside(tmp_path / "data", document(purpose("plain", sim("one")))) as plane:
        heard = await plane.chat({"messages": [{"role": "user", "content": content}]})
        entries = await plane.parts.store.find_entries("acme", "web", heard.headers["x-terraflow-request-id"])
    intent, outcome = [record.decode(entry.data) for entry in entries]
    assert isinstance(intent, record.Intent) and isinstance(outcome, record.Outcome)
    assert intent.request is not None and intent.request.scan is not None
    assert intent.request.scan.attachments is attached
