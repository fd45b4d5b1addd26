"""Log lines are JSON, whatever is logged."""

from __future__ import annotations

import json
import logging

import pytest

from terraflow.app.telemetry import JsonLines


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
