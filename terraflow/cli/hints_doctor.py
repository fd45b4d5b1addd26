"""`terraflow hints doctor`: is the hint service there, well and fed, and do lookups work."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end
from terraflow.cli.shown import shown

if TYPE_CHECKING:
    from terraflow.app.hints_findings import Checkup
    from terraflow.app.hints_settings import HintsSettings


class Form(StrEnum):
    """How the findings are printed."""

    HUMAN = "human"
    TABLE = "table"
    JSON = "json"


def command(
    config: Annotated[Path | None, typer.Option(help="Settings file (TOML) of the service to look at.")] = None,
    data: Annotated[str | None, typer.Option(help="Its data folder, where its token is; overrides data_dir.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="Its gRPC host:port; overrides the settings.")] = None,
    public: Annotated[str | None, typer.Option(help="The host:port of /healthz; overrides the settings.")] = None,
    internal: Annotated[str | None, typer.Option(help="The host:port of /snapshot; overrides the settings.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="The internal listener's token.")] = None,
    tls: Annotated[bool | None, typer.Option("--tls/--plaintext", help="How the gRPC port is spoken to.")] = None,
    ca: Annotated[Path | None, typer.Option(help="PEM authorities that sign its certificate; implies TLS.")] = None,
    client_cert: Annotated[Path | None, typer.Option(help="PEM certificate to show it; implies TLS.")] = None,
    client_key: Annotated[Path | None, typer.Option(help="That certificate's PEM key.")] = None,
    server_name: Annotated[str | None, typer.Option(help="The name that its certificate is for.")] = None,
    manifests: Annotated[Path | None, typer.Option(help="A folder of manifests to lint; default: policy_dir.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Lint the manifests only.")] = False,
    output: Annotated[Form, typer.Option("--output", "-o", help="How the findings are printed.")] = Form.HUMAN,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one look may take.", min=0.1, max=600.0)] = 5.0,
) -> None:
    """Look at a hint service and at manifests; each finding has a code and a next step. Changes nothing. Exits with 0
    when all is well, 1 when there are warnings, 2 when something fails (and when called wrongly)."""
    import asyncio

    from terraflow.app.hints_doctor import BadFiles, Patient, examine
    from terraflow.app.hints_settings import load_hints_settings
    from terraflow.app.settings import BadSettings, environment

    try:
        settings = load_hints_settings(config, environment(), data_dir=data)
    except BadSettings as bad:
        end("hints doctor", str(bad), 2)
    folder = manifests or (None if settings.policy_dir is None else Path(settings.policy_dir))
    if offline and folder is None:
        end("hints doctor", "--offline lints manifests: give their folder with --manifests", 2)
    patient = Patient(
        grpc="" if offline else _address(endpoint, "endpoint", settings.bind_host, settings.bind_port),
        public="" if offline else _address(public, "public", settings.http_host, settings.http_port),
        internal="" if offline else _address(internal, "internal", settings.internal_host, settings.internal_port),
        token=None if offline else _token(token_file, settings),
        tls=tls if tls is not None else bool(ca or client_cert or settings.tls_cert_file),
        ca=ca,
        client_cert=client_cert,
        client_key=client_key,
        server_name=server_name,
        manifests=folder,
        timeout_s=timeout,
    )
    try:
        checkup = asyncio.run(examine(patient))
    except BadFiles as bad:
        end("hints doctor", str(bad), 2)
    _print(checkup, Form.JSON if as_json else output)
    raise typer.Exit(checkup.summary.exit_code)


def _address(given: str | None, flag: str, host: str, port: int) -> str:
    if given is None:
        # Where a service listens everywhere, this machine is one of the places.
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    host, _, number = given.rpartition(":")
    if not host or not number.isdecimal() or not 0 < int(number) < 65536 or (":" in host and not host.startswith("[")):
        end("hints doctor", f"--{flag} {given} is no host:port", 2)
    return given


def _token(file: Path | None, settings: HintsSettings) -> str | None:
    try:
        return (file or settings.token_path()).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        if file is not None:
            end(
                "hints doctor",
                f"--token-file {file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}",
                2,
            )
        return None


def _print(checkup: Checkup, form: Form) -> None:
    import msgspec

    if form is Form.JSON:
        print(msgspec.json.format(msgspec.json.encode(checkup)).decode())
        return
    print("\n".join(map(shown, _table(checkup) if form is Form.TABLE else _human(checkup))))


def _human(checkup: Checkup) -> Iterator[str]:
    from terraflow.app.hints_findings import Severity

    for status in (severity.name for severity in sorted(Severity, reverse=True)):
        findings = [finding for finding in checkup.findings if finding.status == status]
        for finding in findings:
            yield f"{status:<4} {finding.code}  {finding.resource}".rstrip()
            yield f"     {finding.message}"
            if finding.next:
                yield f"     Next: {finding.next}"
        if findings:
            yield ""
    summary = checkup.summary
    yield f"{summary.fail} failed, {summary.warn} to look at, {summary.info} to know, {summary.ok} well"


def _table(checkup: Checkup) -> Iterator[str]:
    head = ("STATUS", "CODE", "CHECK", "RESOURCE", "MESSAGE")
    rows = [head, *((f.status, f.code, f.check, f.resource, f.message) for f in checkup.findings)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
