"""Log lines are JSON, whatever is logged."""

from __future__ import annotations

import asyncio
import io
import json
import logging

import pytest

from terraflow.app.telemetry import FLUSH_S, AccessLog, JsonLines
from terraflow.core.outcome import Refuse, invalid_request
from terraflow.core.reasons import Governed
from terraflow.ports.store import KeyHolder
from tests.storage.makers import SetClock


@pytest.mark.parametrize("exc_info", [False, True, None, (None, None, None), 0])
def test_a_line_needs_no_exception(exc_info: object) -> None:
    record = logging.LogRecord("asyncio", logging.ERROR, "file", 1, "said %s", ("so",), exc_info)  # type: ignore[arg-type]
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["logger"], "exception" in line) == ("said so", "asyncio", False)


def test_an_exception_is_named_and_its_text_is_not() -> None:
    try:
        raise ValueError("SECRET")
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), (ValueError, error, None))
    line = JsonLines().format(record)
    assert json.loads(line)["exception"] == "ValueError" and "SECRET" not in line


def test_a_name_of_a_file_that_is_no_text_is_written() -> None:
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "cannot read \udcff", (), None)
    assert json.loads(JsonLines().format(record))["message"] == "cannot read ?"


async def test_sheds_before_governance_are_one_line_an_application_with_their_number() -> None:
    out = io.StringIO()
    log, shed = AccessLog(SetClock(), out), Refuse(reason=Governed.QUEUE_SHED, retry_after_s=1)
    one, other = KeyHolder("acme", "web", "key_1"), KeyHolder("umbra", "web", "key_2")
    for _ in range(150):
        log.turned_away(shed, None, one)
        log.turned_away(shed, None, KeyHolder("acme", "web", "key_3"))
    log.turned_away(shed, None, other)
    log.turned_away(shed, "req_1", one)
    log.turned_away(invalid_request("body", "must be"), "req_2", one)
    await asyncio.sleep(FLUSH_S * 2)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert sorted((line["tenant"], line["reason"], line["status"], line.get("requests", 0)) for line in lines) == [
        ("acme", "INVALID_REQUEST", 400, 0),
        ("acme", "QUEUE_SHED", 429, 0),
        ("acme", "QUEUE_SHED", 429, 300),
        ("umbra", "QUEUE_SHED", 429, 1),
    ]
    log.turned_away(shed, None, one)
    log.flush()
    assert json.loads(out.getvalue().splitlines()[-1])["requests"] == 1
