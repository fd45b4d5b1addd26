"""`/metrics`: what the plane counts, for whoever holds its token and nobody else."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from terraflow.core.reasons import Governed, ModelApi
from tests.blackbox.conftest import Launch, Site
from tests.harness import bundle
from tests.harness.bundle import limit, purpose, remote, sim
from tests.harness.caller import CANARY, headers_of
from tests.harness.checks import Checks
from tests.harness.plane import NotServing, Plane
from tests.harness.upstreams import COST, DONE, END, USED, Upstreams, answer, chunk, flow, text
from tests.providers.vendor import Vendor, says

TOKEN = f"metrics-{CANARY}"
NONE: frozenset[tuple[str, str]] = frozenset()
PAGE = Path(__file__).resolve().parents[2] / "docs/operating/metrics.md"


@pytest.fixture(scope="module")
def vendor(upstreams: Upstreams) -> Vendor:
    return upstreams.open(answer())


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def site(launch_shared: Launch, vendor: Vendor, token_file: Path) -> Site:
    plain = purpose("plain", remote("engine", vendor.port))
    document = bundle.document(plain, purpose("poor", sim("two")), budgets=[limit("workload", "poor", "hour", "0")])
    return launch_shared(document, metrics_token_file=token_file)


def scrape(plane: Plane, token: str | None = TOKEN, method: str = "GET", path: str = "/metrics") -> httpx2.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx2.request(method, plane.base_url.removesuffix("/v1") + path, headers=headers, timeout=10)


def samples(plane: Plane) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by its name and its labels."""
    response = scrape(plane)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


class Since:
    """What has been counted since it was made."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._before = samples(plane)

    def __call__(self, name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return samples(self._plane).get(key, 0) - self._before.get(key, 0)


def test_an_answer_is_counted(site: Site, vendor: Vendor, checks: Checks) -> None:
    since = Since(site.plane)
    checks.answered(site.caller, site.caller.ask("plain"), capability="engine", cost=COST)
    assert since("terraflow_requests_total", mouth="chat", reason="PERMITTED", status="200", capability="engine") == 1
    assert since("terraflow_request_duration_seconds_count", mouth="chat") == 1
    assert since("terraflow_request_duration_seconds_bucket", mouth="chat", le="+Inf") == 1
    assert 0 < since("terraflow_request_duration_seconds_sum", mouth="chat") < 10
    assert since("terraflow_provider_calls_total", capability="engine", result="answered") == 1
    assert since("terraflow_provider_call_duration_seconds_count", capability="engine") == 1
    assert since("terraflow_tokens_total", capability="engine", kind="input") == 10
    assert since("terraflow_tokens_total", capability="engine", kind="output") == 5
    assert round(since("terraflow_cost_usd_total", capability="engine") * 1e6) == COST
    assert since("terraflow_store_commits_total") >= 2
    assert since("terraflow_store_verbs_total") >= 2
    assert since("terraflow_store_commit_seconds_total") > 0


def test_a_stream_is_counted_when_it_has_ended(site: Site, vendor: Vendor) -> None:
    since = Since(site.plane)
    vendor.replies[:] = [flow(chunk({"role": "assistant"}), 0.3, text("Certainly."), 0.2, END, USED, DONE)]
    with site.caller.stream("plain") as streamed:
        streamed.rest()
    vendor.replies[:] = [answer()]
    site.caller.evidence(streamed.request_id)
    assert since("terraflow_requests_total", mouth="chat", reason="PERMITTED", status="200", capability="engine") == 1
    assert round(since("terraflow_cost_usd_total", capability="engine") * 1e6) == COST
    first_token_s = since("terraflow_provider_time_to_first_token_seconds_sum", capability="engine")
    assert first_token_s >= 0.3, "a role is no token"
    assert first_token_s + 0.2 <= since("terraflow_provider_call_duration_seconds_sum", capability="engine") + 0.001
    assert since("terraflow_provider_time_to_first_token_seconds_count", capability="engine") == 1


def test_a_request_without_a_call(site: Site, checks: Checks) -> None:
    since = Since(site.plane)
    checks.refused(site.caller, site.caller.ask("poor"), Governed.BUDGET_EXHAUSTED, detail="workload_hour")
    assert since("terraflow_requests_total", mouth="chat", reason="BUDGET_EXHAUSTED", status="429", capability="") == 1


def test_refusals_and_what_was_turned_away(site: Site, checks: Checks) -> None:
    since = Since(site.plane)
    checks.refused(site.caller, site.caller.ask("nothing"), Governed.UNKNOWN_WORKLOAD)
    checks.ungoverned(site.caller.post(b"{"), ModelApi.INVALID_REQUEST, field="body")
    assert since("terraflow_requests_total", mouth="chat", reason="UNKNOWN_WORKLOAD", status="403", capability="") == 1
    assert since("terraflow_requests_refused_total", reason="UNKNOWN_WORKLOAD") == 1
    assert since("terraflow_requests_turned_away_total", reason="INVALID_REQUEST") == 1


def test_failures_of_a_provider(site: Site, vendor: Vendor, checks: Checks) -> None:
    since = Since(site.plane)
    vendor.replies[:] = [says(500, {"error": {}})]
    failed = site.caller.ask("plain")
    checks.refused(site.caller, failed, Governed.PROVIDER_ERROR_UNRECOVERED, detail="server_error")
    vendor.replies[:] = [answer()]
    assert since("terraflow_provider_calls_total", capability="engine", result="server_error") >= 2
    assert since("terraflow_cost_usd_total", capability="engine") == 0


def test_the_state_of_the_plane(site: Site) -> None:
    found = samples(site.plane)
    assert found["terraflow_ready", NONE] == 1
    assert found["terraflow_requests_open", NONE] == 0
    assert found["terraflow_admission_running", NONE] == found["terraflow_admission_waiting", NONE] == 0
    assert found["terraflow_doorstep_waiting", NONE] == 0
    assert 1 <= found["terraflow_admission_limit", NONE] <= found["terraflow_admission_limit_max", NONE] == 256
    assert found["terraflow_bundle_sequence", NONE] == 1
    assert found["terraflow_evidence_damaged_logs", NONE] == 0
    assert 0 <= found["terraflow_evidence_lag_seconds", NONE] < 10
    two = frozenset({("capability", "two")})
    assert (found["terraflow_capability_healthy", two], found["terraflow_capability_rests_total", two]) == (1, 0)
    assert found["terraflow_capability_calls", two] == found["terraflow_capability_calls_waiting", two] == 0
    assert found["terraflow_capability_calls_limit", two] == found["terraflow_capability_calls_limit_max", two] == 256
    assert found["terraflow_connections_open", NONE] >= 1
    assert found["terraflow_connections_refused_total", NONE] == 0
    assert found["process_open_fds", NONE] > 0


def test_every_series_is_documented_and_every_documented_one_is_there(site: Site) -> None:
    site.caller.ask("plain")
    families = {family.name for family in text_string_to_metric_families(scrape(site.plane).text)}
    own = {name for name in families if name.startswith("terraflow_")}
    documented = set(re.findall(r"^\| `(terraflow_[a-z_]+)`", PAGE.read_text(), re.MULTILINE))
    assert {name.removesuffix("_total") for name in documented} == own


def test_the_pages_ask_for_series_that_there_are(site: Site) -> None:
    site.caller.ask("plain")
    shown = scrape(site.plane).text
    for page in (PAGE, PAGE.with_name("on-call.md")):
        for name in set(re.findall(r"terraflow_[a-z_]+", page.read_text())):
            assert f"\n{name}" in shown, name
        for label, values in re.findall(r"\b(reason|result)[=!]~?\"([A-Za-z_|\\]+)\"", page.read_text()):
            for value in re.split(r"\\?\|", values):
                assert f'{label}="{value}"' in shown, value


def test_nothing_of_a_caller_is_shown(site: Site) -> None:
    site.caller.ask("plain", CANARY, headers=headers_of(key="k", run="run-shown"))
    shown = scrape(site.plane).text
    for word in (CANARY, site.caller.api_key, TOKEN, "acme", "web", "req_", "run-shown"):
        assert word not in shown


@pytest.mark.parametrize("token", [None, "x", "x" * 20, TOKEN + "x", TOKEN[:-1], "key"])
def test_a_scrape_without_the_token(token: str | None, site: Site, checks: Checks) -> None:
    token = site.caller.api_key if token == "key" else token
    checks.ungoverned(scrape(site.plane, token), ModelApi.METRICS_UNAUTHORIZED, named=False)


def test_the_token_opens_nothing_else(site: Site, checks: Checks) -> None:
    refused = scrape(site.plane, path="/v1/models")
    checks.ungoverned(refused, Governed.APP_UNAUTHENTICATED, named=False)


def test_other_methods_and_head(site: Site, checks: Checks) -> None:
    checks.ungoverned(scrape(site.plane, method="POST"), ModelApi.NOT_FOUND, named=False)
    head = scrape(site.plane, method="HEAD")
    assert (head.status_code, head.content) == (200, b"")


def test_without_a_token_nobody_is_told(launch: Launch, checks: Checks) -> None:
    site = launch(bundle.document(purpose("plain", sim("one"))))
    for token in (None, TOKEN):
        checks.ungoverned(scrape(site.plane, token), ModelApi.METRICS_TOKEN_REQUIRED, named=False)


def test_when_off_there_is_no_such_path(launch: Launch, token_file: Path, checks: Checks) -> None:
    document = bundle.document(purpose("plain", sim("one")))
    site = launch(document, metrics="false", metrics_token_file=token_file)
    checks.ungoverned(scrape(site.plane), ModelApi.NOT_FOUND, named=False)


def test_a_scraper_beside_the_plane_needs_no_proxy(launch: Launch, token_file: Path) -> None:
    document = bundle.document(purpose("plain", sim("one")))
    site = launch(document, metrics_token_file=token_file, trusted_proxies=["10.0.0.0/8"])
    assert scrape(site.plane).status_code == 200


@pytest.mark.parametrize("held", ["", "short", "has a space in it", "caf\u00e9" * 5, None])
def test_a_token_file_that_cannot_be_used(held: str | None, launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if held is not None:
        file.write_text(held)
    with pytest.raises(NotServing, match="metrics_token_file"):
        launch(bundle.document(purpose("plain", sim("one"))), metrics_token_file=file)
