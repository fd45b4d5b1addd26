"""`terraflow verify`: is this evidence what the log's key signed? Offline, with the public key alone.

Exit codes: 0 verified, 1 refused, 2 not asked well (no such file, no such key).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from terraflow.cli.ending import end
from terraflow.cli.progress import Progress

if TYPE_CHECKING:
    from terraflow.verifier.formats import LogKey


def command(
    evidence: Annotated[
        Path, typer.Argument(help="An export's folder, or a file with the answer of GET /v1/evidence/{request_id}.")
    ],
    key: Annotated[str, typer.Option(help="The log's verifier key, <name>+<hash>+<base64>, or a file that holds it.")],
    previous: Annotated[
        Path | None, typer.Option(help="A checkpoint seen earlier: the export must continue it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as a JSON object.")] = False,
) -> None:
    """Verify an export, or one request's evidence, against the log's public key."""
    from terraflow.verifier.formats import Refused

    try:
        log_key = _read_key(key)
        seen = None if previous is None else previous.read_bytes()
        if not evidence.exists():
            raise ValueError(f"there is no {evidence}")
        if seen is not None and not evidence.is_dir():
            raise ValueError("--previous goes with an export's folder")
        verdict = _verify_folder(evidence, log_key, seen) if evidence.is_dir() else _verify_answer(evidence, log_key)
    except Refused as refused:
        said: dict[str, Any] = {"verified": False, "where": refused.where, "what": refused.what}
        if refused.record is not None:
            tenant, index, request_id = refused.record
            said["record"] = {"tenant": tenant, "index": index, "request_id": request_id}
        _say(said, [f"REFUSED  {refused}"], as_json)
        raise typer.Exit(1) from None
    except OSError as trouble:
        end("verify", f"cannot read {trouble.filename or evidence}: {trouble.strerror or trouble}", 2)
    except ValueError as trouble:
        end("verify", str(trouble), 2)
    _say({"verified": True, **verdict}, _summary(verdict), as_json)


def _read_key(key: str) -> LogKey:
    from terraflow.verifier.formats import parse_key

    file = Path(key)
    if file.is_file():
        try:
            return parse_key(file.read_text("utf-8").strip())
        except OSError as trouble:
            raise ValueError(f"cannot read the key file {key}: {trouble.strerror}") from None
        except ValueError as trouble:
            raise ValueError(f"--key: the file {key} holds no verifier key: {trouble}") from None
    if "+" not in key:
        raise ValueError(
            f"--key {key} is neither a verifier key (<name>+<hash>+<base64>, as `terraflow evidence key` prints it)"
            " nor a file that holds one"
        )
    return parse_key(key)


def _verify_folder(folder: Path, key: LogKey, previous: bytes | None) -> dict[str, Any]:
    from terraflow.verifier.export import verify_export

    with Progress("records") as progress:
        return verify_export(folder, key, previous, os.cpu_count() or 1, progress)._asdict()


def _verify_answer(file: Path, key: LogKey) -> dict[str, Any]:
    from terraflow.verifier.proof import verify_answer

    return {"origin": key.name, **verify_answer(file.read_bytes(), key)._asdict()}


def _summary(verdict: dict[str, Any]) -> list[str]:
    if "request_id" in verdict:
        where = ", ".join(
            f"{kind} at {index}" for kind, index in zip(verdict["kinds"], verdict["indexes"], strict=True)
        )
        return [f"VERIFIED  {verdict['request_id']}: {where}, in {verdict['origin']} of {verdict['size']} records"]
    lines = [
        f"VERIFIED  {verdict['origin']}: {verdict['size']} records, root {verdict['root']}",
        f"          requests {verdict['intents']}, ended {verdict['outcomes']}, open {verdict['open']};"
        f" feedbacks {verdict['feedbacks']}; checkpoints {verdict['checkpoints']}; files {verdict['files']}",
    ]
    if verdict["previous_size"] is not None:
        lines.append(f"          continues the earlier checkpoint of {verdict['previous_size']} records")
    return lines


def _say(verdict: dict[str, Any], lines: list[str], as_json: bool) -> None:
    print(json.dumps(verdict) if as_json else "\n".join(map(_plain, lines)))


def _plain(line: str) -> str:
    """Printable ASCII, which any standard output takes: a file of a stranger's export may have any name, and what is
    said of it must not steer the terminal, nor pass for a verdict of ours."""
    return "".join(letter if " " <= letter <= "~" else ascii(letter)[1:-1] for letter in line)
