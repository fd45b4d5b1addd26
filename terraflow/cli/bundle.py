"""`terraflow bundle`: write, sign, check, activate and show bundles. Exits with 1 for a bundle that is refused, 2 for
what cannot be read or was asked wrongly.

With `--json` a refusal is a verdict as a pass is, and goes to standard output. What keeps a command from a verdict goes
to standard error, as everywhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from terraflow.cli.ending import end
from terraflow.cli.shown import shown
from terraflow.cli.whole_help import WholeHelp

if TYPE_CHECKING:
    from terraflow.contracts.bundle import Bundle
    from terraflow.contracts.decode import BundleRejected
    from terraflow.contracts.document import BundleDocument
    from terraflow.core.outcome import Problem

app = typer.Typer(cls=WholeHelp, no_args_is_help=True, rich_markup_mode=None)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Config = Annotated[Path | None, typer.Option(help="Settings file (TOML); TERRAFLOW_<KEY> overrides it.")]
Data = Annotated[str | None, typer.Option(help="Data folder; overrides data_dir.")]
SUFFIX = ".dsse.json"


@app.command()
def key(
    out: Annotated[Path, typer.Option(help="A new file for the private key; the public one is written beside it.")],
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key pair to sign bundles with."""
    from terraflow.app.keys import new_key, public_path
    from terraflow.core.signature import key_id

    try:
        made = new_key(out)
    except FileExistsError:
        _fail(f"{out} or {public_path(out)} exists: name a new file, keys are never overwritten")
    except OSError as error:
        _fail(f"cannot write {out}: {error.strerror}")
    public = public_path(out)
    said = {"private_key": str(out), "public_key": str(public), "key_id": key_id(made.public_key())}
    text = f"{out} signs bundles: keep it to yourself.\n{public} verifies them: give it to the planes."
    _print(said, text, as_json)


@app.command()
def sign(
    source: Annotated[Path, typer.Argument(help="The bundle's YAML source.")],
    key: Annotated[Path, typer.Option(help="The private key (PEM), such as `terraflow bundle key` makes.")],
    out: Annotated[Path | None, typer.Option(help=f"Where to write the signed bundle; else SOURCE{SUFFIX}.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a source and sign it."""
    from terraflow.app.keys import KeyUnusable, read_private_key
    from terraflow.contracts.decode import BundleRejected
    from terraflow.contracts.references import find_notices
    from terraflow.contracts.source import parse_source
    from terraflow.contracts.verify import sign_bundle

    raw = _read(source)
    try:
        signing = read_private_key(key)
        document = parse_source(raw)
        envelope = sign_bundle(document, signing)
    except KeyUnusable as error:
        _fail(f"{error}; `terraflow bundle key --out FILE` makes one")
    except BundleRejected as rejected:
        _reject(source, rejected, as_json)
    target = source.with_name(source.stem + SUFFIX) if out is None else out
    try:
        target.write_bytes(envelope)
    except OSError as error:
        _fail(f"cannot write {target}: {error.strerror}")
    said = {"file": str(target), "sequence": document.sequence, "notices": _listed(find_notices(document))}
    next_step = f"terraflow bundle activate {target} --data DIR"
    _print(said, f"signed sequence {document.sequence} into {target}. To put it in force:\n{next_step}", as_json)
    _notice(find_notices(document), as_json)


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A signed bundle, or with --source a YAML source.")],
    key: Annotated[list[Path] | None, typer.Option(help="A public key (PEM) that is trusted; may be repeated.")] = None,
    source: Annotated[bool, typer.Option("--source", help="FILE is a source: check all but a signature.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a bundle as an activation would, except for its addresses and its sequence number, and tell what will be
    refused or off under it: on standard error, as notes."""
    from terraflow.app.keys import KeyUnusable, read_public_key
    from terraflow.app.notices import notices_here
    from terraflow.app.runtime import SystemClock
    from terraflow.contracts.decode import BundleRejected
    from terraflow.contracts.source import parse_source
    from terraflow.contracts.verify import sign_bundle, verify_bundle
    from terraflow.core.signature import keyring

    if source == bool(key):
        _fail("name the public key with --key, or say --source for a YAML source")
    raw = _read(file)
    now = SystemClock().now()
    try:
        if source:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

            # A key for this moment: what is checked is exactly what a signed bundle is checked for.
            passing = Ed25519PrivateKey.generate()
            envelope, keys = sign_bundle(parse_source(raw), passing), keyring([passing.public_key()])
        else:
            envelope, keys = raw, keyring(read_public_key(path) for path in key or [])
        bundle = verify_bundle(envelope, keys, now)
    except KeyUnusable as error:
        _fail(str(error))
    except BundleRejected as rejected:
        _reject(file, rejected, as_json)
    what = "sound source" if source else "valid bundle"
    notices = notices_here(bundle)
    _print({"valid": True, **_summary(bundle, notices)}, f"{file} is a {what}, {_line(bundle)}", as_json)
    _notice(notices, as_json)


@app.command()
def activate(
    file: Annotated[Path, typer.Argument(help="The signed bundle.")],
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Put a bundle in force. A running plane takes it over within a second."""
    from terraflow.app.activation import activate as put_in_force
    from terraflow.app.keys import KeyUnusable
    from terraflow.app.notices import notices_here
    from terraflow.app.opening import CannotStart
    from terraflow.app.settings import BadSettings, environment, load_settings
    from terraflow.contracts.decode import BundleRejected
    from terraflow.ports.store import StoreUnavailable
    from terraflow.storage.sqlite.schema import DatabaseUnusable
    from terraflow.storage.sqlite.tools import DatabaseMissing

    raw = _read(file)
    try:
        settings = load_settings(config, environment(), data_dir=data)
        bundle = put_in_force(settings, raw)
    except BundleRejected as rejected:
        _reject(file, rejected, as_json)
    except DatabaseMissing as error:
        _fail(f"{error}: name the plane's data folder with --data")
    except (BadSettings, CannotStart, DatabaseUnusable, KeyUnusable, StoreUnavailable) as error:
        _fail(str(error))
    notices = notices_here(bundle)
    _print({"activated": True, **_summary(bundle, notices)}, f"in force: {_line(bundle)}", as_json)
    _notice(notices, as_json)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A signed bundle, or a YAML source.")],
    as_json: AsJson = False,
) -> None:
    """Print what a bundle holds. Its signature is not looked at: `verify` does that."""
    from terraflow.cli.outline import outline
    from terraflow.contracts.decode import BundleRejected
    from terraflow.contracts.verify import payload_of

    raw = _read(file)
    try:
        document = _document(raw)
        payload = payload_of(document)
    except BundleRejected as rejected:
        _reject(file, rejected, as_json)
    if as_json:
        print(payload.decode())
        return
    print("\n".join(map(shown, outline(document))))


def _document(raw: bytes) -> BundleDocument:
    from terraflow.contracts.source import parse_source
    from terraflow.contracts.verify import read_unverified

    try:
        envelope = json.loads(raw)
        signed = isinstance(envelope, dict) and "payload" in envelope
    except (ValueError, RecursionError):
        signed = False
    return read_unverified(raw) if signed else parse_source(raw)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        _fail(f"cannot read {file}: {error.strerror}")


def _summary(bundle: Bundle, notices: tuple[Problem, ...]) -> dict[str, Any]:
    return {
        "sequence": bundle.sequence,
        "digest": bundle.digest,
        "expires": bundle.document.expires.isoformat(),
        "workloads": len(bundle.workloads),
        "capabilities": len(bundle.capabilities),
        "notices": _listed(notices),
    }


def _line(bundle: Bundle) -> str:
    return (
        f"sequence {bundle.sequence}, {len(bundle.workloads)} workloads, {len(bundle.capabilities)} capabilities,"
        f" expires {bundle.document.expires.isoformat()}\ndigest {bundle.digest}"
    )


def _listed(problems: tuple[Problem, ...]) -> list[dict[str, str]]:
    return [{"field": problem.field, "rule": problem.rule} for problem in problems]


def _print(said: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(said, ensure_ascii=False) if as_json else text)


def _notice(notices: tuple[Problem, ...], as_json: bool) -> None:
    if as_json:
        return
    for notice in notices:
        print(f"note: {notice.field} {notice.rule}", file=sys.stderr)


def _reject(file: Path, rejected: BundleRejected, as_json: bool) -> NoReturn:
    if as_json:
        print(json.dumps({"valid": False, "problems": _listed(rejected.problems)}, ensure_ascii=False))
    else:
        print(f"{file} is refused; nothing was changed:", file=sys.stderr)
        for problem in rejected.problems:
            print(shown(f"  {problem.field}: {problem.rule}"), file=sys.stderr)
        print("Every field is explained in docs/reference/bundle.md.", file=sys.stderr)
    raise typer.Exit(1)


def _fail(said: str) -> NoReturn:
    end("bundle", said, 2)
