"""`terraflow reason` as a shell sees it: output, errors and exit codes of the real process."""

from __future__ import annotations

import json
import subprocess
import sys

from terraflow import __version__
from terraflow.core.reasons import REASONS

FIELDS = ["surface", "code", "status", "kind", "meaning", "action", "retry", "since", "raised_by"]


def terraflow(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from terraflow.cli.main import main; main()", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=20)


def test_all_as_json_is_a_list_of_objects_with_every_field() -> None:
    done = terraflow("reason", "--all", "--json")
    listed = json.loads(done.stdout)
    assert (done.returncode, done.stderr, len(listed)) == (0, "", 153)
    assert all(list(entry)[: len(FIELDS)] == FIELDS for entry in listed)
    assert [(entry["surface"], entry["code"], entry["status"]) for entry in listed] == [
        (row.surface, row.code, row.status) for row in REASONS
    ]
    assert {type(entry["retry"]) for entry in listed} == {bool}
    assert {type(entry["raised_by"]) for entry in listed} <= {str, type(None)}


def test_one_code_says_what_it_means_and_what_to_do() -> None:
    done = terraflow("reason", "queue_shed")
    assert done.returncode == 0
    assert done.stdout.startswith("QUEUE_SHED  (governed, 429, response, since 0.1.0)\n")
    text = " ".join(done.stdout.split())
    row = next(row for row in REASONS if row.code == "QUEUE_SHED")
    assert row.meaning in text
    assert f"What to do {row.action} Retry yes" in text


def test_a_code_on_two_surfaces_is_printed_for_both_or_for_the_one_asked_for() -> None:
    both = json.loads(terraflow("reason", "NOT_FOUND", "--json").stdout)
    one = json.loads(terraflow("reason", "NOT_FOUND", "--surface", "console_api", "--json").stdout)
    assert [entry["surface"] for entry in both] == ["model_api", "console_api"]
    assert one == [both[1]]


def test_a_second_status_and_a_note_are_told() -> None:
    entry = json.loads(terraflow("reason", "UNKNOWN_WORKLOAD", "--json").stdout)[0]
    assert entry["second_status"]["status"] == 404
    assert "Also        404" in terraflow("reason", "UNKNOWN_WORKLOAD").stdout
    assert "does raise it" in terraflow("reason", "TIER_NOT_AVAILABLE").stdout


def test_all_for_people_is_one_line_a_code() -> None:
    lines = terraflow("reason", "--all").stdout.splitlines()
    assert len(lines) == 1 + len(REASONS)
    assert lines[1].split() == ["governed", "ACTION_ALLOWED", "200", "no", "planned"]


def test_an_unknown_code_names_the_nearest_and_fails() -> None:
    done = terraflow("reason", "BUDGET_EXHAUST")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "terraflow reason: there is no reason code BUDGET_EXHAUST; did you mean BUDGET_EXHAUSTED"
    )
    far = terraflow("reason", "zzzzzz")
    assert (far.returncode, "--all" in far.stderr) == (2, True)


def test_a_code_of_another_surface_is_told_apart_from_an_unknown_one() -> None:
    done = terraflow("reason", "CACHE_HIT", "--surface", "console_api")
    assert (done.returncode, "but of governed" in done.stderr) == (2, True)


def test_it_wants_either_a_code_or_all() -> None:
    assert terraflow("reason").returncode == 2
    assert terraflow("reason", "CACHE_HIT", "--all").returncode == 2


def test_the_version_and_the_help() -> None:
    assert terraflow("--version").stdout == f"terraflow {__version__}\n"
    helped = terraflow("--help")
    assert (helped.returncode, "reason" in helped.stdout) == (0, True)
    assert terraflow("no-such-command").returncode == 2


def test_a_command_imports_only_what_it_needs() -> None:
    program = (
        "import sys\n"
        "from terraflow.cli.main import main\n"
        "sys.argv = ['terraflow', 'reason', 'CACHE_HIT']\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "terraflow.cli.reason" in loaded
    assert not loaded & {"aiohttp", "uvicorn", "cryptography", "hyperscan", "sqlite3", "asyncio", "rich"}
