"""A request that has several faults ends at the first of them, in the order of the pipeline's steps; and one that asks
for a stream is refused in the same words as one that does not."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import httpx2
import pytest

from terraflow.core.reasons import Code, Governed, ModelApi
from tests.blackbox.conftest import Launch, Site, every_mouth, every_vendor_mouth
from tests.faults.plane import CLOCK_JUMPED
from tests.harness import bundle
from tests.harness.bundle import Json, limit, purpose, sim
from tests.harness.caller import CANARY, body_of, headers_of
from tests.harness.checks import Checks
from tests.harness.mouths import MOUTHS, Mouth

SCAN_BYTES_MAX = 20_000
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
CARD = "4111 1111 1111 1111"
OVER = "x" * SCAN_BYTES_MAX


class Fault(NamedTuple):
    """What is wrong with a request, and the code that says so."""

    code: Code
    headers: dict[str, str] = {}
    body: Json = {}
    text: str = ""
    without: str = ""
    """A header that is left out."""
    detail: str = ""


KEYS = itertools.count()
GOOD = headers_of("strict", key="once", data_class="internal")

# fmt: off
FAULTS = (
    Fault(Governed.APP_UNAUTHENTICATED,   {"Authorization": f"Bearer tf_{CANARY}"}),
    Fault(ModelApi.INVALID_DATA_CLASS,    {"X-TerraFlow-Data-Class": CANARY}),
    Fault(ModelApi.INVALID_REQUEST,       body={"temperature": 9}),
    Fault(Governed.UNKNOWN_WORKLOAD,      headers_of("nothing-of-that-name")),
    Fault(Governed.APP_NOT_ENTITLED_TO_WORKLOAD, headers_of("withheld")),
    Fault(Governed.CONTRACT_NOT_EXECUTABLE, headers_of("draft"), detail="draft"),
    Fault(Governed.IDEMPOTENCY_KEY_REQUIRED, without="Idempotency-Key"),
    Fault(Governed.TOOL_NOT_PERMITTED,    body={"tools": [TOOL]}),
    Fault(Governed.DATA_CLASS_UNDECLARED, without="X-TerraFlow-Data-Class"),
    Fault(Governed.INPUT_TOO_LARGE,       text=OVER),
    Fault(Governed.DATA_CLASS_NOT_PERMITTED, text=CARD, detail="class"),
    Fault(Governed.PROVIDER_DISABLED,     body={"model": "off"}),
    Fault(Governed.NO_ROUTE_WITHIN_REQUEST_LIMIT, body={"max_tokens": 1_000}),
    Fault(Governed.BUDGET_EXHAUSTED,      detail="workload_hour"),
)
# fmt: on
"""In the order of the steps. The last is not the request's own: it is what a request without a fault meets."""
BEFORE_GOVERNANCE = tuple(fault.code for fault in FAULTS[:3])
WORKLOAD, CONTRACT = FAULTS[3], FAULTS[5]


@pytest.fixture(scope="module")
def site(launch_shared: Launch) -> Site:
    terms: dict[str, Any] = {"require_idempotency": True, "require_class": True, "data_classes": ["internal"]}
    terms |= {"request_limit_usd": "0.001"}
    return launch_shared(
        bundle.document(
            *(
                purpose(name, sim("one"), sim("off", enabled=False), **terms, **more)
                for name, more in {
                    "strict": {},
                    "withheld": {"state": "draft", "approver": None},
                    "draft": {"state": "draft", "approver": None},
                    **{f"once-{mouth.name}": {"requests_per_minute": 1} for mouth in MOUTHS},
                }.items()
            ),
            purpose("down", sim("fails", {"fail": "authentication"})),
            purpose("filtered", sim("filters", {"fail": "content_filtered"})),
            purpose("rejected", sim("rejects", {"fail": "rejected_content"})),
            purpose("slow", sim("stalls", {"latency_ms": 600_000})),
            withheld=("withheld",),
            budgets=[limit("workload", "strict", "hour", "0.000001")],
        ),
        scan_bytes_max=SCAN_BYTES_MAX,
        faults=True,
        health_faults_max=10_000,
    )


def _ask(site: Site, mouth: Mouth, faults: tuple[Fault, ...], **fields: Any) -> httpx2.Response:
    """A request with these faults; where two are about one thing, it has the earlier one."""
    headers = GOOD | headers_of(key=f"key {next(KEYS)}")
    body, text = dict(fields), "Hello"
    for fault in reversed(faults):
        headers |= fault.headers
        body |= fault.body
        text = fault.text or text
        headers.pop(fault.without, None)
    return site.caller.post(mouth.asks(body_of(text, **body)), headers, mouth.path)


def _check(site: Site, checks: Checks, response: httpx2.Response, first: Fault, faults: tuple[Fault, ...]) -> None:
    code = first.code
    if code in BEFORE_GOVERNANCE:
        field = "temperature" if code is ModelApi.INVALID_REQUEST else None
        checks.ungoverned(response, code, field=field, named=code is not Governed.APP_UNAUTHENTICATED)
        return
    assert isinstance(code, Governed)
    resolved = FAULTS.index(first) > FAULTS.index(CONTRACT)
    pinned = any(fault.code is Governed.PROVIDER_DISABLED for fault in faults)
    checks.refused(site.caller, response, code, detail=first.detail, capability="off" if pinned and resolved else None)


@pytest.mark.parametrize("at", range(len(FAULTS)), ids=[fault.code for fault in FAULTS])
@every_mouth
def test_the_first_fault_is_the_one_that_is_told(at: int, mouth: Mouth, site: Site, checks: Checks) -> None:
    faults = FAULTS[at:]
    _check(site, checks, _ask(site, mouth, faults), faults[0], faults)


@pytest.mark.parametrize("at", range(len(FAULTS)), ids=[fault.code for fault in FAULTS])
@every_vendor_mouth
def test_a_stream_that_is_refused_is_told_the_same(at: int, vendor_mouth: Mouth, site: Site, checks: Checks) -> None:
    faults = FAULTS[at:]
    streamed = _ask(site, vendor_mouth, faults, stream=True)
    _check(site, checks, streamed, faults[0], faults)
    whole = _ask(site, vendor_mouth, faults)
    assert _told(streamed) == _told(whole)


def _told(response: httpx2.Response) -> tuple[int, dict[str, str], Json]:
    """A response without what is each one's own."""
    own = ("date", "content-length", "request-id", "x-request-id", "x-terraflow-request-id", "x-terraflow-cost-usd")
    body: Json = response.json()
    body.pop("request_id", None)
    for name in ("request_id", "cost_usd"):
        body["terraflow"].pop(name, None)
    return response.status_code, {name: said for name, said in response.headers.items() if name not in own}, body


@pytest.mark.parametrize("workload", ["down", "filtered", "rejected", "slow"])
@every_vendor_mouth
def test_a_stream_that_fails_before_its_first_chunk_is_told_the_same(
    workload: str, vendor_mouth: Mouth, site: Site, checks: Checks
) -> None:
    headers = headers_of(workload, deadline_ms=300)
    whole, streamed = (site.caller.ask(headers=headers, **fields) for fields in ({}, {"stream": True}))
    assert checks.raised(streamed) is checks.raised(whole)
    assert _told(streamed) == _told(whole)


@every_mouth
def test_the_bundle_comes_before_all_that_stands_in_it(mouth: Mouth, site: Site, checks: Checks) -> None:
    with site.plane.fault(CLOCK_JUMPED):
        response = _ask(site, mouth, FAULTS[FAULTS.index(WORKLOAD) :])
    checks.refused(site.caller, response, Governed.BUNDLE_EXPIRED)


@every_mouth
def test_the_rate_comes_after_the_key_and_before_the_tools(mouth: Mouth, site: Site, checks: Checks) -> None:
    headers = headers_of(f"once-{mouth.name}")
    told = []
    for key in ("first", "second", None):
        response = site.caller.ask(headers=headers | headers_of(key=key), tools=[TOOL])
        told.append(checks.raised(response))
    assert told == [Governed.TOOL_NOT_PERMITTED, Governed.RATE_LIMITED, Governed.IDEMPOTENCY_KEY_REQUIRED]
