"""`terraflow demo` as a newcomer runs it: what it prints, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[dict[str, str]]:
    """A running demo, and what it answered; what it said beside that is in `stderr`."""
    errors = folder / "stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("terraflow"), "demo", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        process.stdout.close()


PAGES = Path(__file__).resolve().parents[2]


def told(page: str, language: str) -> list[str]:
    """The blocks of a language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def typed(command: str, folder: Path, said: dict[str, str], **more: str) -> Any:
    """What a page's command answers that is typed in a shell beside the demo: the body's JSON."""
    there = (
        command.replace("http://127.0.0.1:8080/v1", said["base_url"]).replace("curl ", "curl -s ").replace(" -i ", " ")
    )
    known = {"BASE_URL": said["base_url"], "API_KEY": said["api_key"], "KEY": said["api_key"]}
    done = subprocess.run(
        ["bash", "-euc", there], cwd=folder, env=os.environ | known | more, capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines if len(lines) > 1 else lines[0]


def test_what_pages_type_does_what_they_say(tmp_path: Path) -> None:
    with demo(tmp_path) as said:
        [hello] = [block for block in told("README.md", "sh") if "curl" in block]
        assert typed(hello, tmp_path, said)["terraflow"]["reason_code"] == "PERMITTED"

        answer = typed(told("docs/invocations.md", "sh")[0], tmp_path, said)
        shown = json.loads(told("docs/invocations.md", "json")[0])
        answer["terraflow"]["request_id"] = shown["terraflow"]["request_id"]
        assert answer == shown

        create, look, results = told("docs/batches.md", "sh")
        batch = typed(create, tmp_path, said)
        until = time.monotonic() + 10
        while batch["status"] != "completed" and time.monotonic() < until:
            batch = typed(look, tmp_path, said, ID=batch["id"])
            assert "status" in batch, batch
        found = typed(results, tmp_path, said, RESULTS=batch["output_file_id"])
        assert [(line["custom_id"], line["response"]["status_code"]) for line in found] == [("1", 200), ("2", 200)]


def test_the_clients_of_its_guide_reach_it(tmp_path: Path) -> None:
    with demo(tmp_path, "--guide") as said:
        until = time.monotonic() + 10
        while "Stop with Ctrl-C" not in (guide := (tmp_path / "stderr").read_text()):
            assert time.monotonic() < until, guide
            time.sleep(0.02)
        made = dict(re.findall(r'client = (\w+)\(base_url="([^"]+)"', guide))
        assert sorted(made) == ["Anthropic", "OpenAI"]
        assert guide.count(f'api_key="{said["api_key"]}")') == 2
        hello: Any = {"model": "starter-assistant", "messages": [{"role": "user", "content": "Hello"}]}
        with openai.OpenAI(base_url=made["OpenAI"], api_key=said["api_key"]) as client:
            assert client.chat.completions.create(**hello).choices[0].finish_reason == "stop"
        with anthropic.Anthropic(base_url=made["Anthropic"], api_key=said["api_key"]) as other:
            assert other.messages.create(max_tokens=50, **hello).stop_reason == "end_turn"


def test_a_folder_of_its_own_is_named_while_it_runs_and_gone_afterwards(tmp_path: Path) -> None:
    with demo(tmp_path) as said:
        assert httpx2.get(said["base_url"].replace("/v1", "/readyz")).status_code == 200
    [named] = re.findall(r"the data folder is (\S+); it is removed then", (tmp_path / "stderr").read_text())
    assert "terraflow-demo-" in named and not Path(named).exists()


def test_a_named_folder_stays_and_keeps_its_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with demo(tmp_path, "--data", str(data)) as first:
        pass
    assert f"the data folder is {data}\n" in (tmp_path / "stderr").read_text()
    with demo(tmp_path, "--data", str(data)) as second:
        assert (first["api_key"], first["public_key"]) == (second["api_key"], second["public_key"])
    (data / "keys" / "log.pem").unlink()
    done = subprocess.run(
        [Path(sys.executable).with_name("terraflow"), "demo", "--port", "0", "--data", str(data)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "log.pem is missing" in done.stderr and done.stderr.count("\n") == 1


def test_the_fleet_demo_serves_its_engines_and_records_which_one_answered(tmp_path: Path) -> None:
    with demo(tmp_path, "--fleet") as said:
        head = {"Authorization": f"Bearer {said['api_key']}"}
        body = {"model": "starter-fleet", "messages": [{"role": "user", "content": "A long beginning. " * 500}]}
        found = []
        for _ in range(2):
            answered = httpx2.post(f"{said['base_url']}/chat/completions", json=body, headers=head, timeout=20)
            assert answered.status_code == 200, answered.text
            where = f"{said['base_url']}/evidence/{answered.headers['x-terraflow-request-id']}"
            for _ in range(100):
                outcome = httpx2.get(where, headers=head).json().get("outcome")
                if outcome is not None:
                    break
                time.sleep(0.05)
            found += [attempt["placement"] for attempt in outcome["attempts"]]
        assert found[1]["replica"] == found[0]["replica"]
        assert found[1]["hint"] == "PREFIX_MATCH"
        # Known by its tokens, which are bytes here, and not by its text.
        assert found[1]["matched_tokens"] > 8_000
        engines = re.findall(r"engine-\d  (\S+)/v1", (tmp_path / "stderr").read_text())
        assert len(engines) == 3
        assert all(httpx2.get(f"{engine}/health").status_code == 200 for engine in engines)
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{engines[0]}/health")
