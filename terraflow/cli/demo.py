"""`terraflow demo`: a fresh starter workspace, served at once."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from terraflow.app.settings import Settings

_GUIDE = """
TerraFlow is running on {base_url} with the starter workspace. In another shell:

  curl {base_url}/chat/completions \\
    -H "Authorization: Bearer {api_key}" -H "Content-Type: application/json" -i \\
    -d '{{"model": "starter-assistant", "messages": [{{"role": "user", "content": "Hello"}}]}}'

or, with the OpenAI client:

  from openai import OpenAI
  client = OpenAI(base_url="{base_url}", api_key="{api_key}")

or with Anthropic's:

  from anthropic import Anthropic
  client = Anthropic(base_url="{plane_url}", api_key="{api_key}")

The reason is in the header x-terraflow-reason; the record of a request is at
  {base_url}/evidence/<x-terraflow-request-id>
Stop with Ctrl-C. The data folder is {data}{kept}.
"""
_FLEET = """
The workload starter-fleet runs over three simulated engines with a prefix cache each:
{engines}

  curl {base_url}/chat/completions \\
    -H "Authorization: Bearer {api_key}" -H "Content-Type: application/json" -i \\
    -d '{{"model": "starter-fleet", "messages": [{{"role": "user", "content": "'"$(seq -s ' ' 500)"'"}}]}}'

Which engine took a request, and by what hint, is in its record: "placement" of each attempt. Ask twice, and the second
says PREFIX_MATCH. Kill an engine, and nothing fails.
"""
_FLEET_ENVIRONMENT = {"TERRAFLOW_HINT_DEADLINE_MS": "50"}
"""Where the environment does not say: time to tokenize on a busy machine. A prompt that is known now by its tokens and
now by its text is not found again."""
_TEMPORARY = "; it is removed then (--data FOLDER keeps one)"


def command(
    data: Annotated[str | None, typer.Option(help="Data folder to make; a new temporary one if absent.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 picks a free one.")] = None,
    bench: Annotated[bool, typer.Option("--bench", help="Add the workload `bench` for measuring.")] = False,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Add a fleet of three simulated engines, and route hints.")
    ] = False,
    guide: Annotated[bool, typer.Option("--guide", help="Say on standard error how to call it.")] = False,
) -> None:
    """Make the starter workspace and serve it; the first line printed is JSON: base_url, api_key, console_url,
    username, password, public_key."""
    from terraflow.app.settings import BadSettings, environment, load_settings
    from terraflow.cli.ending import end

    with contextlib.ExitStack() as held:
        folder = data
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="terraflow-demo-", ignore_cleanup_errors=True)
            folder = held.enter_context(made)
        try:
            hints = "inside" if fleet else None
            said = {**_FLEET_ENVIRONMENT, **environment()} if fleet else environment()
            settings = load_settings(None, said, data_dir=folder, bind_host=host, bind_port=port, hints=hints)
        except BadSettings as bad:
            end("demo", str(bad), 2)
        replicas: list[dict[str, Any]] = []
        if fleet:
            from terraflow.app.demo_engines import EngineFailed, demo_engines

            try:
                replicas = held.enter_context(demo_engines())
            except EngineFailed as failed:
                end("demo", str(failed), 1)
        _serve(settings, replicas, temporary=data is None, bench=bench, guide=guide)


def _serve(settings: Settings, replicas: list[dict[str, Any]], *, temporary: bool, bench: bool, guide: bool) -> None:
    import msgspec

    from terraflow.app.demo import DemoAnswers, NoDemoFolder, make_workspace, public_log_key
    from terraflow.app.keys import KeyUnusable
    from terraflow.app.opening import CannotStart
    from terraflow.cli.ending import end
    from terraflow.cli.starting import run

    try:
        api_key = make_workspace(settings, bench=bench, replicas=replicas)
    except (CannotStart, KeyUnusable, NoDemoFolder) as trouble:
        end("demo", str(trouble), 1)

    def listening(url: str) -> None:
        answers = DemoAnswers(
            base_url=f"{url}/v1",
            api_key=api_key,
            console_url=None,
            username=None,
            password=None,
            public_key=public_log_key(settings),
        )
        print(msgspec.json.encode(answers).decode(), flush=True)
        kept = _TEMPORARY if temporary else ""
        said = f"terraflow demo: the data folder is {settings.data_dir}{kept}"
        if guide:
            urls = {"base_url": answers.base_url, "plane_url": answers.base_url.removesuffix("/v1")}
            said = _GUIDE.format(**urls, api_key=api_key, data=settings.data_dir, kept=kept)
        if replicas:
            engines = "\n".join(f"  {replica['id']}  {replica['endpoint']}" for replica in replicas)
            said += _FLEET.format(engines=engines, base_url=answers.base_url, api_key=api_key)
        print(said, file=sys.stderr, flush=True)

    run("demo", settings, listening)
