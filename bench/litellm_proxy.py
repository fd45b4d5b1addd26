"""LiteLLM's proxy in front of the mock, from the bench's own environment (`make bench-setup`).

1. One worker, no database, no callbacks, no retries, errors only in the log, a master key to check: the least
   that it does when it serves (docs.litellm.ai, "Benchmarks" and "Production Best Practices").
2. It needs no network: its price map is the local one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.processes import HOST, Server, free_port, running, wait_ready

ENVIRONMENT = Path(__file__).parents[1] / ".venv-bench"
START_S = 90.0
_KEY = "sk-bench"


def installed() -> str | None:
    """LiteLLM's version in the bench's environment, or None when `make bench-setup` has not been run."""
    found = sorted(ENVIRONMENT.glob("lib/python3.*/site-packages/litellm-*.dist-info"))
    return found[0].name.removeprefix("litellm-").removesuffix(".dist-info") if found else None


def configuration(models: Sequence[str], upstream_url: str) -> str:
    """Its settings file; JSON is YAML."""
    routes = [
        {
            "model_name": model,
            "litellm_params": {"model": f"openai/{model}", "api_base": upstream_url, "api_key": "none"},
        }
        for model in models
    ]
    quiet = {"num_retries": 0, "request_timeout": 60, "set_verbose": False, "telemetry": False, "callbacks": []}
    return json.dumps(
        {"model_list": routes, "litellm_settings": quiet, "general_settings": {"master_key": _KEY}}, indent=1
    )


@contextmanager
def litellm(models: Sequence[str], upstream_url: str, folder: Path) -> Iterator[Server]:
    """The proxy for the length of the block. Raises NotStarted."""
    port, config, log = free_port(), folder / "litellm.yaml", folder / "litellm.log"
    config.write_text(configuration(models, upstream_url))
    command = [str(ENVIRONMENT / "bin/litellm"), "--config", str(config), "--host", HOST, "--port", str(port)]
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "NO_PROXY": "*",
    }
    begun = time.monotonic()
    with running([*command, "--telemetry", "False"], log, env, keep_output=False) as process:
        wait_ready(port, "/health/readiness", process, log, START_S)
        yield Server(
            name=f"LiteLLM {installed()}",
            base_url=f"http://{HOST}:{port}/v1",
            pid=process.pid,
            headers=(f"authorization: Bearer {_KEY}",),
            started_s=time.monotonic() - begun,
        )
