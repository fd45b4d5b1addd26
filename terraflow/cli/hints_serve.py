"""`terraflow hints serve`: the route-hint service, alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end

if TYPE_CHECKING:
    from terraflow.app.hints import RunningHints

Config = Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_HINTS_<KEY> overrides it.")]


def command(
    config: Config = None,
    data: Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")] = None,
    host: Annotated[str | None, typer.Option(help="Address of the gRPC port; overrides bind_host.")] = None,
    port: Annotated[int | None, typer.Option(help="gRPC port, 0 for a free one; overrides bind_port.")] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port of /healthz, /readyz and /metrics, 0 for a free one; overrides http_port.")
    ] = None,
    internal_port: Annotated[
        int | None, typer.Option(help="Port of /policy and its like, 0 for a free one; overrides internal_port.")
    ] = None,
    policies: Annotated[str | None, typer.Option(help="Folder of manifests; overrides policy_dir.")] = None,
    insecure_producers: Annotated[
        bool, typer.Option("--insecure-producers", help="Take reports of anybody, for every tenant and replica.")
    ] = False,
) -> None:
    """Serve until SIGTERM; prints one JSON line with the addresses once calls are answered."""
    import msgspec

    from terraflow.app.hints_server import serve_hints
    from terraflow.app.hints_settings import load_hints_settings
    from terraflow.app.keys import KeyUnusable
    from terraflow.app.opening import CannotStart
    from terraflow.app.settings import BadSettings, environment

    try:
        settings = load_hints_settings(
            config,
            environment(),
            data_dir=data,
            bind_host=host,
            bind_port=port,
            http_port=http_port,
            internal_port=internal_port,
            policy_dir=policies,
            insecure_producers=insecure_producers or None,
        )
    except BadSettings as bad:
        end("hints serve", str(bad), 2)

    def listening(running: RunningHints) -> None:
        hosts = {"grpc": settings.bind_host, "http": settings.http_host, "internal": settings.internal_host}
        places = {name: _place(hosts[name], port) for name, port in running.ports.items()}
        print(msgspec.json.encode(places).decode(), flush=True)

    try:
        serve_hints(settings, listening)
    except (CannotStart, KeyUnusable) as trouble:
        end("hints serve", str(trouble), 1)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
