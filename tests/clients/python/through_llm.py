"""The `llm` command, over the vendor's API named first: writes what it printed, as JSON.

1. It is set up by its own means: `openai` by its file of extra models, `anthropic` by the vendor's variables and by
   `llm anthropic refresh`, which reads the plane's list of models.
2. All its commands run in this one process, because loading its plugins takes it seconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

URL, KEY, QUESTION = (os.environ[f"PLANE_{name}"] for name in ("URL", "KEY", "QUESTION"))
HOME = tempfile.TemporaryDirectory()
os.environ |= {
    "LLM_USER_PATH": HOME.name,
    "ANTHROPIC_BASE_URL": URL.removesuffix("/v1"),
    "ANTHROPIC_API_KEY": KEY,
}

from click.testing import CliRunner, Result  # noqa: E402
from llm.cli import cli  # noqa: E402

FUNCTION = """
def weather(city: str) -> str:
    "What it is like outside."
    return f"35 °C in {city}"
"""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "integer"}, "items": {"type": "array", "items": {"type": "string"}}},
    "required": ["total", "items"],
    "additionalProperties": False,
}


def run(*arguments: str) -> Result:
    """One command."""
    return CliRunner().invoke(cli, arguments)


def said(workload: str, *more: str) -> str:
    """What it prints of an answer."""
    ended = asked(workload, *more)
    if ended.exit_code != 0:
        raise SystemExit(ended.output)
    return ended.stdout.strip()


def asked(workload: str, *more: str) -> Result:
    """A question, put to a workload."""
    key = ["--key", KEY] if sys.argv[1] == "openai" else []
    return run("-m", workload, *key, *more, QUESTION)


def set_up() -> None:
    """What a user does once."""
    if sys.argv[1] == "anthropic":
        refreshed = run("anthropic", "refresh")
        if refreshed.exit_code != 0:
            raise SystemExit(refreshed.output)
        return
    more = {"api_base": URL, "api_key_name": "plane", "supports_tools": True, "supports_schema": True}
    models = [{"model_id": name, "model_name": name, **more} for name in ("work", "extract", "poor")]
    headers = {"x-terraflow-workload": "poor"}
    models.append({"model_id": "governed", "model_name": "work", "headers": headers, **more})
    Path(HOME.name, "extra-openai-models.yaml").write_text(json.dumps(models))


set_up()
called = asked("work", "--functions", FUNCTION, "--tools-debug")
refused = asked("poor")
governed = asked("governed") if sys.argv[1] == "openai" else refused
heard = {
    "plain": said("work", "--no-stream"),
    "streamed": said("work"),
    "tools": {"said": called.stdout.strip(), "called": "Tool call: weather({'city': 'Pune'})" in called.stderr},
    "structured": json.loads(said("extract", "--schema", json.dumps(SCHEMA))),
    "governed": "BUDGET_EXHAUSTED" in governed.stderr,
    "refused": {"exit": refused.exit_code, "told": "BUDGET_EXHAUSTED" in refused.stderr},
}
HOME.cleanup()
print(json.dumps(heard))
