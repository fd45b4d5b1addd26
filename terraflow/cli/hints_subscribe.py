"""`terraflow hints subscribe`: a process beside an engine that tells a hints server what the engine caches.

Reads the engine's KV events over ZeroMQ, asks for replays, and sends ReportCacheState and PublishEvent of the public
contract. Standard error has a line for each change as it happens (connected, refused, lost, healed) and, every
`--interval-s`, one for how it goes; with `--json` every counter goes to standard output instead, as a JSON line, at
those intervals and at the end. Ends with SIGTERM or SIGINT.
Exit codes: 0 ended as told, 2 cannot be: an option or a file that is none.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end

if TYPE_CHECKING:
    from terraflow.hints.feed.remote import Target
    from terraflow.hints.feed.settings import FeedSettings


def command(
    endpoint: Annotated[str, typer.Option(help="Where the engine publishes, such as tcp://127.0.0.1:5557.")],
    replica: Annotated[str, typer.Option(help="The replica's id, as gateways route to it.")],
    model: Annotated[str, typer.Option(help="The model of its keys.")],
    tenant: Annotated[str, typer.Option(help="The tenant of its keys.")],
    scheme: Annotated[str, typer.Option(help="The hash scheme of its keys.")],
    server: Annotated[str, typer.Option(help="The hints server, HOST:PORT.")] = "127.0.0.1:50051",
    replay_endpoint: Annotated[str | None, typer.Option(help="Where the engine answers replays.")] = None,
    topic: Annotated[str, typer.Option(help="Only what is published under a topic that begins so.")] = "",
    lora: Annotated[list[str] | None, typer.Option(help="ID=NAME of an adapter; may be repeated.")] = None,
    rank: Annotated[
        list[str] | None, typer.Option(help="RANK=REPLICA of a data-parallel rank; may be repeated.")
    ] = None,
    metrics_url: Annotated[str | None, typer.Option(help="The engine's Prometheus page.")] = None,
    cache_bytes: Annotated[int, typer.Option(min=0, help="The size of its cache; 0: its use is not told.")] = 0,
    heartbeat_s: Annotated[float, typer.Option(min=0.1, max=3600, help="An engine silent for two is lost.")] = 10.0,
    token_file: Annotated[Path | None, typer.Option(help="A file with the token that we show the server.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="TLS, with the system's authorities unless --ca-file.")] = False,
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM of who signed the server's certificate; implies --tls.")
    ] = None,
    cert_file: Annotated[Path | None, typer.Option(help="PEM of our own certificate; with --key-file.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="PEM of its key.")] = None,
    blocks_max: Annotated[int, typer.Option(min=1, help="Blocks that may wait for the server.")] = 1_000_000,
    interval_s: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="How often it says how it goes; default: 10 with --json, 60 in a log, 1 at a terminal. Changes are"
            " said at once.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every counter as JSON, one line at a time.")] = False,
) -> None:
    """Tell a hints server what an engine caches, until SIGTERM."""
    import msgspec
    import uvloop

    from terraflow.app.grpc_noise import quiet_grpc

    quiet_grpc()
    from terraflow.hints.feed.settings import FeedSettings

    given: dict[str, object] = {
        "endpoint": endpoint,
        "replay_endpoint": replay_endpoint,
        "replica": replica,
        "model": model,
        "tenant": tenant,
        "scheme": scheme,
        "topic": topic,
        "loras": _pairs("--lora", lora),
        "ranks": _pairs("--rank", rank),
        "metrics_url": metrics_url,
        "cache_bytes": cache_bytes,
        "heartbeat_s": heartbeat_s,
    }
    try:
        settings = msgspec.convert(given, FeedSettings)
        settings.lora_names()
    except (msgspec.ValidationError, ValueError) as bad:
        end("hints subscribe", str(bad), 2)
    target = _target(
        server, token_file, tls or ca_file is not None or cert_file is not None, ca_file, cert_file, key_file
    )
    uvloop.run(_run(settings, target, blocks_max, interval_s, as_json))


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for one in given or ():
        number, equals, name = one.partition("=")
        if not equals or not number.isdecimal() or not name:
            end("hints subscribe", f"{option} {one}: give a number, '=' and a name", 2)
        pairs[number] = name
    return pairs


def _read(option: str, file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        end("hints subscribe", f"{option} {file}: {error.strerror}", 2)


def _target(
    server: str, token_file: Path | None, tls: bool, ca_file: Path | None, cert_file: Path | None, key_file: Path | None
) -> Target:
    from terraflow.hints.feed.remote import Target

    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        end("hints subscribe", f"--server {server} is no HOST:PORT, such as hints.internal:50051", 2)
    if (cert_file is None) != (key_file is None):
        end("hints subscribe", "--cert-file and --key-file go together", 2)
    token = _read("--token-file", token_file)
    if token is not None and not tls and host not in ("127.0.0.1", "localhost", "[::1]"):
        end("hints subscribe", "a token in plaintext to another machine: use --tls or --ca-file", 2)
    shown = None if token is None else token.decode("ascii", "replace").strip()
    if shown is not None and not (shown and shown.isascii() and shown.isprintable()):
        end("hints subscribe", f"--token-file {token_file} holds no token; `terraflow hints token` makes one", 2)
    ca = _read("--ca-file", ca_file)
    _check_pem(ca, ca_file, cert_file, key_file)
    return Target(
        address=server,
        token=shown,
        tls=tls,
        ca=ca,
        certificate=_read("--cert-file", cert_file),
        key=_read("--key-file", key_file),
    )


def _check_pem(ca: bytes | None, ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> None:
    """gRPC takes whatever a file holds, and fails at each call."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if ca is not None:
            context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ssl.SSLError, ValueError):
        end(
            "hints subscribe",
            f"--ca-file {ca_file} holds no certificate: give the PEM file of who signed the server's",
            2,
        )
    try:
        if cert_file is not None and key_file is not None:
            context.load_cert_chain(cert_file, key_file)
    except OSError as error:
        end(
            "hints subscribe",
            f"--cert-file {cert_file} and --key-file {key_file} are no certificate and its key: {error.strerror}",
            2,
        )


async def _run(
    settings: FeedSettings, target: Target, blocks_max: int, interval_s: float | None, as_json: bool
) -> None:
    import asyncio

    from terraflow import __version__
    from terraflow.cli.hints_subscribe_lines import counted, show, write_changes
    from terraflow.hints.feed.feeds import Feeds
    from terraflow.hints.feed.remote import Greeting, RemoteSink

    write_changes()
    print(
        f"hints subscribe: hears {settings.endpoint} as {settings.name}, tells {target.address}",
        file=sys.stderr,
        flush=True,
    )
    greeting = Greeting(settings.tenant, settings.model, next(iter(settings.ranks.values()), settings.replica))
    sink = RemoteSink(target, greeting=greeting, blocks_max=blocks_max)
    feeds = Feeds([settings], sink, client_version=f"terraflow/{__version__}")
    sink.tell_anew = feeds.tell_anew
    loop = asyncio.get_running_loop()
    parts = [
        loop.create_task(feeds.run()),
        loop.create_task(sink.run()),
        loop.create_task(show(feeds, sink, interval_s, as_json)),
    ]
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    waiting = loop.create_task(ended.wait())
    done, _ = await asyncio.wait((waiting, *parts), return_when=asyncio.FIRST_COMPLETED)
    last = counted(feeds, sink)
    for part in (waiting, *parts):
        part.cancel()
    await asyncio.gather(waiting, *parts, return_exceptions=True)
    if as_json:
        print(json.dumps(last), flush=True)
    for part in done:
        part.result()
