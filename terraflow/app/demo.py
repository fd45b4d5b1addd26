"""The starter workspace: a data folder with keys, an application and an active bundle, made in one go."""

from __future__ import annotations

import importlib.resources
import json
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML

from terraflow.app.keys import new_key, read_private_key
from terraflow.app.log_key import log_key_path, open_log_key
from terraflow.app.opening import naming
from terraflow.app.runtime import SystemClock
from terraflow.app.settings import Settings
from terraflow.contracts.capability import Capability
from terraflow.contracts.contract import Contract
from terraflow.contracts.document import BundleDocument, WorkloadEntry
from terraflow.contracts.source import parse_source
from terraflow.contracts.verify import BundleRejected, sign_bundle, verify_bundle
from terraflow.core.signature import keyring
from terraflow.evidence.checkpoint import log_key
from terraflow.identity.keys import make_key
from terraflow.ports.store import ApiKey
from terraflow.storage.sqlite.folder import DATABASE
from terraflow.storage.sqlite.tools import open_tools

TENANT = "starter"
APPLICATION = "starter-app"
_VALID = timedelta(days=365)
_NOTE = "demo.json"

Replicas = Sequence[dict[str, Any]]
"""The members of a fleet, as a bundle writes them."""


class NoDemoFolder(Exception):
    """The folder holds something that is not the demo's; it is left as it is."""


class DemoAnswers(msgspec.Struct, frozen=True):
    """What a caller needs; the console's three are None until it is built."""

    base_url: str
    api_key: str
    console_url: str | None
    username: str | None
    password: str | None
    public_key: str


def make_workspace(settings: Settings, *, bench: bool, replicas: Replicas = ()) -> str:
    """Make the data folder into the starter workspace, and give its API key. A folder that already is one keeps its
    state and its key; its bundle is signed anew. `replicas`, as a bundle writes them, become a fleet.

    Raises NoDemoFolder, CannotStart, KeyUnusable."""
    folder = Path(settings.data_dir)
    note = folder / _NOTE
    clock = SystemClock()
    if (folder / DATABASE).exists() and not note.exists():
        raise NoDemoFolder(f"{folder} is another plane's data folder: name a new one with --data")
    with naming("data_dir", folder / DATABASE), open_tools(folder, make=True) as tools:
        if note.exists():
            api_key = _read_note(note)
            signing = read_private_key(folder / "keys" / "bundle.pem")
        else:
            made = make_key(secrets.token_urlsafe, secrets.token_hex)
            api_key = made.text
            signing = new_key(folder / "keys" / "bundle.pem")
            tools.add_key(ApiKey(made.id, TENANT, APPLICATION, made.digest, clock.now()))
            _write_private(note, json.dumps({"api_key": api_key}))
        active = tools.active_bundle()
        keys = keyring([signing.public_key()])
        try:
            sequence = 1 if active is None else verify_bundle(active, keys, clock.now(), active=True).sequence + 1
        except BundleRejected:
            raise NoDemoFolder(f"{folder} has a bundle of another key in force: name a new one with --data") from None
        document = starter_document(sequence, bench=bench, replicas=replicas)
        tools.activate_bundle(sign_bundle(document, signing), sequence, clock.now())
        open_log_key(settings, tools.ledger)
    return api_key


def _read_note(note: Path) -> str:
    try:
        return str(json.loads(note.read_text("utf-8"))["api_key"])
    except (ValueError, KeyError, TypeError):
        raise NoDemoFolder(f"{note} is damaged: name a new folder with --data") from None


def starter_document(sequence: int, *, bench: bool, replicas: Replicas = ()) -> BundleDocument:
    """The starter bundle's document, valid for a year from now."""
    now = datetime.now(UTC).replace(microsecond=0)
    document = parse_source(_resource("starter.yaml"))
    if bench:
        document = _with(document, _parsed("bench_workload.yaml"))
    if replicas:
        more = _parsed("fleet_workload.yaml")
        more["capabilities"][0]["fleet"]["replicas"] = list(replicas)
        document = _with(document, more)
    return msgspec.structs.replace(document, sequence=sequence, issued=now, expires=now + _VALID)


def _parsed(name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = YAML(typ="safe").load(_resource(name))
    return parsed


def _with(document: BundleDocument, parsed: dict[str, Any]) -> BundleDocument:
    more = msgspec.convert(parsed, _More)
    applications = [
        msgspec.structs.replace(entry, workloads=(*entry.workloads, *(w.id for w in more.workloads)))
        for entry in document.applications
    ]
    return msgspec.structs.replace(
        document,
        applications=tuple(applications),
        workloads=(*document.workloads, *more.workloads),
        contracts=(*document.contracts, *more.contracts),
        capabilities=(*document.capabilities, *more.capabilities),
    )


class _More(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    workloads: tuple[WorkloadEntry, ...]
    contracts: tuple[Contract, ...]
    capabilities: tuple[Capability, ...]


def _resource(name: str) -> bytes:
    return (importlib.resources.files("terraflow.app") / name).read_bytes()


def public_log_key(settings: Settings) -> str:
    """The verifier key of the starter tenant's log."""
    return log_key(TENANT, read_private_key(log_key_path(settings)).public_key())


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
