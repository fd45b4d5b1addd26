"""Streams whose model is silent: they show that they are alive, before the first chunk too, and end as they must."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
import pytest

from terraflow.core.reasons import Governed
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import purpose, remote
from tests.harness.caller import CHAT, body_of, content_of, headers_of, until
from tests.harness.checks import Checks
from tests.harness.upstreams import COST, DONE, END, USED, Gate, Upstreams, answer, flow, held, text
from tests.providers.vendor import Vendor, says

BEAT = ": keep-alive"
SILENCE_S = 2.4
"""Two heartbeats and a tick."""


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(flow(text("Certainly."), END, USED, DONE))


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor) -> Site:
    engine = remote("engine", vendor.port)
    document = bundle.document(purpose("plain", engine), purpose("buffered", engine, output={"stream": "buffered"}))
    return launch_shared(document, heartbeat_s=1, health_faults_max=10_000)


@contextmanager
def streamed(site: Site, workload: str = "plain", **headers: Any) -> Iterator[tuple[httpx2.Response, list[str]]]:
    """A stream's response, and its lines that are not empty once it has ended."""
    head = site.caller.authorization | headers_of(workload, **headers)
    body = json.dumps(body_of(stream=True)).encode()
    with httpx2.stream("POST", site.plane.base_url + CHAT, content=body, headers=head, timeout=20) as response:
        yield response, [line for line in response.iter_lines() if line]


def data(lines: list[str]) -> list[str]:
    return [line.removeprefix("data: ") for line in lines if line != BEAT]


def test_a_model_that_falls_silent(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(text("Cert"), SILENCE_S, text("ainly."), END, USED, DONE)]
    with streamed(site) as (response, lines):
        assert lines[1:3] == [BEAT, BEAT]
        assert lines.count(BEAT) >= 2
        assert content_of(data(lines)) == "Certainly." and lines[-1] == "data: [DONE]"
    request_id = response.headers["x-terraflow-request-id"]
    outcome = checks.outcome(site.caller, request_id, Governed.PERMITTED, cost=COST)
    events = "".join(f"data: {event}\n\n" for event in data(lines)[:-1])
    assert outcome["answer"]["bytes"] == len(events), "heartbeats are no part of the answer"


def test_a_model_that_thinks_before_its_first_word(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(SILENCE_S, text("Certainly."), END, USED, DONE)]
    with streamed(site) as (response, lines):
        assert lines[:2] == [BEAT, BEAT]
        assert content_of(data(lines)) == "Certainly." and lines[-1] == "data: [DONE]"
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "x-terraflow-capability" not in response.headers, "nobody had answered"
    checks.outcome(site.caller, response.headers["x-terraflow-request-id"], Governed.PERMITTED, cost=COST)


def test_a_model_that_says_nothing_at_first(site: Site, vendor: Vendor) -> None:
    gate = Gate()
    vendor.replies[:] = [held(gate, flow(text("Certainly."), END, USED, DONE))]
    head = site.caller.authorization
    body = json.dumps(body_of(stream=True)).encode()
    with httpx2.stream("POST", site.plane.base_url + CHAT, content=body, headers=head, timeout=20) as response:
        lines = response.iter_lines()
        assert next(lines) == BEAT
        gate.open()
        assert "data: [DONE]" in list(lines)


def test_an_answer_that_must_be_whole_before_it_may_go(site: Site, vendor: Vendor, checks: Checks) -> None:
    gate = Gate()
    vendor.replies[:] = [held(gate, answer())]
    head = site.caller.authorization | headers_of("buffered")
    body = json.dumps(body_of(stream=True)).encode()
    with httpx2.stream("POST", site.plane.base_url + CHAT, content=body, headers=head, timeout=20) as response:
        lines = response.iter_lines()
        assert next(lines) == BEAT
        gate.open()
        rest = [line for line in lines if line]
    assert content_of(data(rest)) == "Certainly." and rest[-1] == "data: [DONE]"
    assert "x-terraflow-reason" not in response.headers
    checks.outcome(site.caller, response.headers["x-terraflow-request-id"], Governed.PERMITTED, cost=COST)


@pytest.mark.parametrize("workload", ["plain", "buffered"])
def test_a_refusal_behind_a_heartbeat_is_an_error_event(
    workload: str, site: Site, vendor: Vendor, checks: Checks
) -> None:
    gate = Gate()
    vendor.replies[:] = [held(gate, says(401, {}))]
    head = site.caller.authorization | headers_of(workload)
    body = json.dumps(body_of(stream=True)).encode()
    with httpx2.stream("POST", site.plane.base_url + CHAT, content=body, headers=head, timeout=20) as response:
        lines = response.iter_lines()
        assert next(lines) == BEAT
        gate.open()
        rest = data([line for line in lines if line])
    assert response.status_code == 200
    assert len(rest) == 1
    error = json.loads(rest[0])
    outcome = checks.outcome(
        site.caller, response.headers["x-terraflow-request-id"], Governed.PROVIDER_ERROR_UNRECOVERED
    )
    assert error["error"]["code"] == error["terraflow"]["reason_code"] == outcome["reason_code"]


def test_a_deadline_behind_heartbeats(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(60.0)]
    left = len(vendor.closed_at)
    with streamed(site, deadline_ms=1_500) as (response, lines):
        assert lines[0] == BEAT
        assert json.loads(data(lines)[-1])["error"]["code"] == Governed.DEADLINE_EXPIRED
    checks.outcome(site.caller, response.headers["x-terraflow-request-id"], Governed.DEADLINE_EXPIRED)
    until(lambda: len(vendor.closed_at) > left)


def test_a_caller_that_leaves_between_heartbeats(site: Site, vendor: Vendor, checks: Checks) -> None:
    vendor.replies[:] = [flow(60.0)]
    left = len(vendor.closed_at)
    head = site.caller.authorization
    body = json.dumps(body_of(stream=True)).encode()
    with httpx2.stream("POST", site.plane.base_url + CHAT, content=body, headers=head, timeout=20) as response:
        assert next(response.iter_lines()) == BEAT
    until(lambda: len(vendor.closed_at) > left)
    checks.outcome(site.caller, response.headers["x-terraflow-request-id"], Governed.CANCELLED)


def test_an_unmodified_client_hears_no_heartbeat(site: Site, vendor: Vendor) -> None:
    vendor.replies[:] = [flow(1.5, text("Cert"), 1.5, text("ainly."), END, USED, DONE)]
    with openai.OpenAI(base_url=site.plane.base_url, api_key=site.caller.api_key, max_retries=0) as client:
        stream = client.chat.completions.create(model="plain", messages=body_of()["messages"], stream=True)
        said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert said == "Certainly."
