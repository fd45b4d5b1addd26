"""That a bundle ends soon, or has ended, is told in time: by a clock that the test sets."""

from __future__ import annotations

import logging

import pytest

from terraflow.app.expiry import DAY, SOON, ExpiryWatch
from terraflow.core.types import Instant

ENDS = Instant(1_800_000_000_000_000)
HOUR = DAY // 24


def told(caplog: pytest.LogCaptureFixture, watch: ExpiryWatch, now: int, digest: str = "a") -> list[tuple[int, str]]:
    caplog.clear()
    watch.look(digest, 7, ENDS, Instant(now))
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_nothing_is_told_before_the_last_two_weeks(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, ExpiryWatch(), ENDS - SOON - 1) == []


def test_in_the_last_two_weeks_it_is_told_at_once_and_daily(caplog: pytest.LogCaptureFixture) -> None:
    watch = ExpiryWatch()
    warnings = {now: told(caplog, watch, now) for now in range(ENDS - SOON, ENDS, HOUR)}
    days = [now for now, lines in warnings.items() if lines]
    assert days == [ENDS - SOON + day * DAY for day in range(14)]
    assert {lines[0][0] for lines in warnings.values() if lines} == {logging.WARNING}
    assert "bundle 7 expires at 2027-01-15T08:00:00.000000Z, in 14 days" in warnings[ENDS - SOON][0][1]
    assert "in 1 day:" in warnings[ENDS - DAY][0][1]
    assert "in less than a day" in told(caplog, ExpiryWatch(), ENDS - 1)[0][1]


def test_the_end_is_an_error_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = ExpiryWatch()
    [(level, said)] = told(caplog, watch, ENDS)
    assert level == logging.ERROR and "bundle 7 expired at" in said
    assert told(caplog, watch, ENDS + DAY) == []


def test_another_bundle_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    watch = ExpiryWatch()
    assert told(caplog, watch, ENDS - DAY) and not told(caplog, watch, ENDS - DAY)
    assert told(caplog, watch, ENDS - DAY, digest="b")
    assert told(caplog, watch, ENDS, digest="b") and told(caplog, watch, ENDS, digest="c")
