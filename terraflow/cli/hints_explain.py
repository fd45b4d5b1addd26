"""`terraflow hints explain`: one lookup taken apart, by a running service or from a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from terraflow.cli.ending import end
from terraflow.cli.shown import shown

if TYPE_CHECKING:
    from terraflow.app.hints_settings import HintsSettings
    from terraflow.hints.deciding.explain import Explanation, Row
    from terraflow.hints.service.explaining import ExplainRequest

TIMEOUT_S = 10.0
DIGITS_MAX = 20

Config = Annotated[Path | None, typer.Option(help="The service's settings file: says where it listens internally.")]


def command(
    tenant: Annotated[str, typer.Option(help="The lookup's tenant_id.")],
    model: Annotated[str, typer.Option(help="Its model_id.")],
    scheme: Annotated[str, typer.Option(help="Its hash_scheme.")],
    adapter: Annotated[str, typer.Option(help="Its adapter_id.")] = "",
    blocks: Annotated[str, typer.Option(help="Its block hashes in hexadecimal, with commas between.")] = "",
    counts: Annotated[str, typer.Option(help="Tokens of each block; without them each has --block-tokens.")] = "",
    block_tokens: Annotated[int, typer.Option(help="Tokens of a block.")] = 16,
    prefix_hash: Annotated[str, typer.Option(help="Its prefix_hash in hexadecimal.")] = "",
    prefix_tokens: Annotated[int, typer.Option(help="Its prefix_token_count.")] = 0,
    tokens: Annotated[str, typer.Option(help="Its token ids, with commas between.")] = "",
    text: Annotated[str, typer.Option(help="Its prompt_text.")] = "",
    ttft_ms: Annotated[int, typer.Option(help="Its slo.ttft_ms.")] = 0,
    config: Config = None,
    data: Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")] = None,
    at: Annotated[str | None, typer.Option(help="HOST:PORT of the internal listener; overrides the settings.")] = None,
    snapshot: Annotated[Path | None, typer.Option(help="Ask this snapshot file instead of a running service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print every candidate's factors, and why the code of a lookup is what it is."""
    import msgspec

    from terraflow.app.hints_settings import load_hints_settings
    from terraflow.app.loading import plainly
    from terraflow.app.settings import BadSettings, environment
    from terraflow.hints.service.explaining import ExplainRequest

    try:
        settings = load_hints_settings(config, environment(), data_dir=data)
        asked = msgspec.convert(
            {
                "tenant": tenant,
                "model": model,
                "scheme": scheme,
                "adapter": adapter,
                "block_hashes": [_hex("--blocks", one) for one in _list(blocks)],
                "block_token_counts": _numbers("--counts", counts) if counts else None,
                "block_tokens": block_tokens,
                "prefix_hash": _hex("--prefix-hash", prefix_hash),
                "prefix_token_count": prefix_tokens,
                "token_ids": _numbers("--tokens", tokens),
                "prompt_text": text,
                "ttft_ms": ttft_ms,
            },
            ExplainRequest,
        )
    except BadSettings as bad:
        end("hints explain", str(bad), 2)
    except msgspec.ValidationError as bad:
        path, words = plainly(ExplainRequest, str(bad))
        end("hints explain", f"{'.'.join(map(str, path))}: {words}", 2)
    found = _of_service(settings, asked, at) if snapshot is None else _of_snapshot(settings, asked, snapshot)
    print(msgspec.json.encode(found).decode() if as_json else "\n".join(map(shown, lines(found))))


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _hex(option: str, text: str) -> str:
    try:
        bytes.fromhex(text)
    except ValueError:
        end(
            "hints explain",
            f"{option}: {text} is no hash in hexadecimal, such as 0a1b2c3d4e5f6071, two digits a byte",
            2,
        )
    return text


def _numbers(option: str, text: str) -> list[int]:
    for one in _list(text):
        if not one.isascii() or not one.removeprefix("-").isdecimal() or len(one) > DIGITS_MAX:
            end("hints explain", f"{option}: {one} is no whole number; give numbers with commas between", 2)
    return [int(one) for one in _list(text)]


def _of_service(settings: HintsSettings, asked: ExplainRequest, at: str | None) -> Explanation:
    import http.client

    import msgspec

    from terraflow.hints.deciding.explain import Explanation

    place = at or f"{settings.internal_host}:{settings.internal_port}"
    try:
        token = settings.token_path().read_text("ascii").strip()
    except OSError as error:
        end(
            "hints explain",
            f"cannot read the internal token {settings.token_path()}: {error.strerror}; see --data or --config",
            1,
        )
    connection = http.client.HTTPConnection(place, timeout=TIMEOUT_S)
    try:
        connection.request("POST", "/explain", msgspec.json.encode(asked), {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        raw = response.read()
    except (OSError, http.client.HTTPException) as error:
        end("hints explain", f"no hint service answers at {place}: {error}; see --at", 1)
    if response.status != 200:
        end("hints explain", f"{place} answered {response.status}: {raw[:500].decode('utf-8', 'replace')}", 1)
    return msgspec.json.decode(raw, type=Explanation)


def _of_snapshot(settings: HintsSettings, asked: ExplainRequest, path: Path) -> Explanation:
    import asyncio

    from terraflow.app.hints_opening import open_stored
    from terraflow.app.opening import CannotStart
    from terraflow.app.runtime import SystemClock
    from terraflow.hints.service.explaining import explained
    from terraflow.hints.snapshot import SnapshotDamaged

    try:
        live = asyncio.run(open_stored(settings, path, SystemClock()))
    except CannotStart as trouble:
        end("hints explain", str(trouble), 1)
    except (SnapshotDamaged, OSError) as trouble:
        end("hints explain", f"the snapshot {path} cannot be used: {trouble}", 1)
    if live is None:
        end("hints explain", f"there is no snapshot at {path}", 1)
    return explained(live, asked)


def lines(found: Explanation) -> list[str]:
    """The explanation for people."""
    what = f"{found.blocks} blocks, " if found.blocks else ""
    said = [
        f"{found.reason}: {found.why} (step {found.step})",
        f"the input has {what}{found.input_tokens} tokens; {found.replicas_in_scope} replicas are in the scope",
    ]
    if any(row.answered for row in found.rows):
        said.append("* stands before each replica of the answer, best first")
    for row in found.rows:
        said += ["", f"{'*' if row.answered else ' '} {row.replica}: {row.why}", *_details(row)]
    return said


def _details(row: Row) -> list[str]:
    said = []
    if row.age_s is not None:
        said.append(
            f"    holds {row.blocks} blocks, {row.matched_tokens} tokens, seen {row.age_s:.1f} s ago, tier {row.tier}"
        )
    if row.factors is not None:
        of = row.factors
        said.append(
            f"    score {row.score:g} = {of.basis:g} x freshness {of.freshness:g} x pressure {of.pressure:g}"
            f" x slo {of.slo:g} x distinguishing {of.distinguishing:g} x tier {of.tier:g} x degraded {of.degraded:g}"
        )
    if row.in_flight:
        said.append(f"    {row.in_flight} requests in flight, {row.load_tokens:g} tokens of load")
    return said
