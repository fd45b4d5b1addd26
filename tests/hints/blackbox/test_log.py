"""What an operator reads of a running service: its log has what changed, and its pages say what is in force."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.hints.blackbox.certificates import Authority
from tests.hints.blackbox.served import ANY_PORT, CALL_S, Served, until
from tests.hints.blackbox.test_policies import POLICY, TEMPLATE

POSTED = {
    "version": 3,
    "policies": [
        {"namespace": "acme", "evictionTTL": 5_000_000_000, "minimumMatchedTokens": 7, "eviction": "lfu"},
    ],
    "tenants": [{"tenantID": "acme", "maxIndexEntries": 3}],
}


def said(served: Served) -> list[dict[str, Any]]:
    return [json.loads(line) for line in served.errors().splitlines()]


def lines(served: Served, what: str) -> list[dict[str, Any]]:
    return [line for line in said(served) if what in line["message"]]


def test_what_is_posted_is_shown_and_logged_and_a_changed_folder_does_not_claim_it(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "a.yaml").write_text(POLICY.format(tokens=9))
    with Served(tmp_path, policy_dir=folder) as served:
        status, body = served.http("/policy", at="internal")
        page = json.loads(body)
        assert (status, page["source"]) == (200, "folder")
        assert [(row["namespace"], row["minimumMatchedTokens"]) for row in page["policies"]] == [("acme", 9)]
        assert served.http("/policy", at="internal", method="POST", body=POSTED)[0] == 204
        shown = json.loads(served.http("/policy", at="internal")[1])
        assert shown["source"] == "posted" and shown["since"] >= page["since"] and shown["since"].endswith("Z")
        assert shown["tenants"] == [{"tenantID": "acme", "maxIndexEntries": 3, "isolationMode": ""}]
        row = shown["policies"][0]
        assert (row["evictionTTL"], row["minimumMatchedTokens"], row["eviction"]) == (5_000_000_000, 7, "lfu")
        assert len(lines(served, "until the service starts again: cache policies 1, quotas 1")) == 1
        # What is shown can be posted as it is.
        again = {"version": 7, "policies": shown["policies"], "tenants": shown["tenants"]}
        assert served.http("/policy", at="internal", method="PUT", body=again)[0] == 204
        assert json.loads(served.http("/policy", at="internal")[1])["policies"] == shown["policies"]

        (folder / "b.yaml").write_text(TEMPLATE.format(tenant="acme", text="one").removeprefix("\n---"))
        until(lambda: bool(lines(served, "templates 1")))
        (changed,) = lines(served, "templates 1")
        assert changed["level"] == "warning"
        assert "its cache policies and quotas are not, since others were posted" in changed["message"]
        assert not lines(served, "change detected") and "watchfiles" not in served.errors()


def test_a_service_without_policies_says_so(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        page = json.loads(served.http("/policy", at="internal")[1])
        assert (page["source"], page["policies"], page["tenants"]) == ("none", [], [])


def test_a_wrong_token_is_told_from_none(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        for headers, words in (
            ({}, "a bearer token is needed"),
            ({"Authorization": "Bearer wrong"}, "this bearer token is not this listener's"),
        ):
            connection = http.client.HTTPConnection(served.at["internal"], timeout=CALL_S)
            connection.request("POST", "/policy", "{}", headers)
            answer = connection.getresponse()
            assert answer.status == 401
            assert json.loads(answer.read())["error"].startswith(words)
            connection.close()


def test_a_renewed_and_a_broken_certificate_are_a_line_each(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server")
    with Served(tmp_path, tls_cert_file=files[0], tls_key_file=files[1]) as served:
        other = (tmp_path / "other").mkdir() or Authority(tmp_path / "other").issue("server")
        for now, before in zip(other, files, strict=True):
            shutil.copy(now, before)
        until(lambda: bool(lines(served, "are renewed")), 20.0)
        files[0].write_text("rubbish")
        until(lambda: bool(lines(served, "cannot be used")), 20.0)
    (renewed,), (refused,) = lines(served, "are renewed"), lines(served, "cannot be used")
    assert renewed["message"].startswith(f"TLS: {files[0]}, {files[1]} are renewed")
    assert (renewed["level"], refused["level"]) == ("info", "warning")
    assert f"{files[0]}, {files[1]} cannot be used, and the former stay in force" in refused["message"]


def test_a_port_that_is_taken_is_named_by_its_setting_with_the_option_that_changes_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, option in (("bind", "--port"), ("http", "--http-port"), ("internal", "--internal-port")):
            asked = {
                f"{key.removesuffix('_port')}": value for key, value in (ANY_PORT | {f"{name}_port": port}).items()
            }
            flags = {"bind": "--port", "http": "--http-port", "internal": "--internal-port"}
            given = [part for key, value in asked.items() for part in (flags[key], str(value))]
            command = [str(Path(sys.executable).with_name("terraflow")), "hints", "serve", *given]
            done = subprocess.run(
                [*command, "--data", str(tmp_path / name)], capture_output=True, text=True, timeout=30, check=False
            )
            assert done.returncode == 1
            assert f"{name}_port: cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
            assert f"or 0 for a free one, in the settings or with {option}" in done.stderr
