"""The access log: one line a request, which says what its caller was answered, and nothing that no page names."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.batches import joined, line
from tests.harness.bundle import limit, purpose, sim
from tests.harness.caller import CANARY

Json = dict[str, Any]
PAGE = Path(__file__).resolve().parents[2] / "docs/operating/on-call.md"


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    purposes = purpose("plain", sim("one")), purpose("poor", sim("two"))
    return launch_shared(bundle.document(*purposes, budgets=[limit("workload", "poor", "hour", "0")]), faults=True)


def found(site: Site, holds: Callable[[Json], bool]) -> Json:
    """The first line of which that holds, once it is written."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        for text in site.plane.log.read_text().splitlines():
            said: Json = json.loads(text)
            if holds(said):
                return said
        time.sleep(0.02)
    raise AssertionError("no line")


def line_of(site: Site, request_id: str) -> Json:
    """A request's line."""
    return found(site, lambda said: said.get("request_id") == request_id)


def shed_line(site: Site) -> Json:
    """The line of what was shed before it was governed."""
    with site.plane.fault("behind"):
        assert site.caller.ask("plain").status_code == 429
    return found(site, lambda said: "requests" in said)


def id_of(response: httpx2.Response) -> str:
    return str(response.headers["x-terraflow-request-id"])


def test_a_governed_request(site: Site) -> None:
    answered = site.caller.ask("plain", CANARY)
    said = line_of(site, id_of(answered))
    assert (said["tenant"], said["application"], said["workload"]) == ("acme", "web", "plain")
    assert (said["mouth"], said["reason"], said["detail"], said["status"]) == ("chat", "PERMITTED", "", 200)
    assert said["capability"] == "one" and said["cost_micro_usd"] > 0 and said["ms"] >= 0
    refused = line_of(site, id_of(site.caller.ask("poor", CANARY)))
    assert (refused["reason"], refused["detail"], refused["status"]) == ("BUDGET_EXHAUSTED", "workload_hour", 429)
    assert CANARY not in site.plane.log.read_text()


@pytest.mark.parametrize(
    ("content_type", "headers", "reason"),
    [
        ("application/json", {}, "INVALID_REQUEST"),
        ("application/jsonl", {"x-terraflow-workload": "x"}, "UNKNOWN_WORKLOAD"),
    ],
)
def test_the_status_is_the_one_that_was_answered(
    content_type: str, headers: dict[str, str], reason: str, site: Site
) -> None:
    lines = joined([line("a", "plain")]) if headers else b"{"
    response = site.caller.post(lines, headers | {"Content-Type": content_type}, "/batches")
    assert response.json()["error"]["code"] == reason
    said = line_of(site, id_of(response))
    assert (said["reason"], said["status"]) == (reason, response.status_code)


def test_what_is_shed_before_it_is_governed(site: Site) -> None:
    said = shed_line(site)
    assert (said["tenant"], said["application"], said["reason"]) == ("acme", "web", "QUEUE_SHED")
    assert said["requests"] >= 1 and said["request_id"] is None


def test_every_field_of_a_line_is_documented(site: Site) -> None:
    governed = line_of(site, id_of(site.caller.ask("plain")))
    away = line_of(site, id_of(site.caller.post(b"{")))
    documented = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", PAGE.read_text(), re.MULTILINE)
    named = {name for row in documented for name in re.findall(r"`([a-z_]+)`", row)}
    assert governed.keys() | away.keys() | shed_line(site).keys() == named
