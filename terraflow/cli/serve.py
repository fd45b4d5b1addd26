"""`terraflow serve`: run a plane on a data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")] = None,
    data: Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; overrides bind_host.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, 0 for a free one; overrides bind_port.")] = None,
) -> None:
    """Serve until SIGTERM; prints one JSON line with the base URL once requests are taken."""
    import msgspec

    from terraflow.app.settings import BadSettings, environment, load_settings
    from terraflow.cli.ending import end
    from terraflow.cli.starting import run

    try:
        settings = load_settings(config, environment(), data_dir=data, bind_host=host, bind_port=port)
    except BadSettings as bad:
        end("serve", str(bad), 2)

    def listening(url: str) -> None:
        print(msgspec.json.encode({"base_url": f"{url}/v1"}).decode(), flush=True)

    run("serve", settings, listening)
