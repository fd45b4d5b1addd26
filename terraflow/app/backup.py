"""A backup of a data folder: the database as of one moment, and the small files that belong to it.

1. The high-water marks are copied before the database, so that no mark in a backup is ahead of its logs.
2. Private keys, and the demo's API key, are left out unless asked for: who can read a backup should not thereby be
   able to sign. Public keys always go along.
3. `backup.json` names every file with its SHA-256, and how many records each tenant's log has. It is written last:
   a folder without it is no backup.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from terraflow import __version__
from terraflow.app.opening import marks_folder
from terraflow.app.settings import Settings
from terraflow.evidence.highwater import SUFFIX
from terraflow.evidence.record import rfc3339
from terraflow.ports.runtime import Clock
from terraflow.storage.sqlite.backup import back_up
from terraflow.storage.sqlite.folder import DATABASE, make_folder
from terraflow.storage.sqlite.tools import DatabaseMissing

MANIFEST = "backup.json"
KEYS = "keys"
MARKS = "marks"
DEMO = "demo.json"


class OutNotEmpty(Exception):
    """The folder to write into holds something already."""


class BackedUp(msgspec.Struct, frozen=True):
    """What a backup holds: files by their paths in it, and records by tenant. `elsewhere` names what a restored plane
    needs too and what the settings keep outside the data folder."""

    made_at: str
    version: str
    records: dict[str, int]
    private_keys: bool
    answers: bool
    files: dict[str, str]
    elsewhere: list[str]


def back_up_folder(
    settings: Settings,
    out: Path,
    clock: Clock,
    progress: Callable[[int, int], None],
    *,
    with_keys: bool,
    with_answers: bool,
) -> BackedUp:
    """Write a backup of the settings' data folder into a new or empty folder.

    Raises OutNotEmpty, DatabaseMissing, BackupDamaged, DatabaseUnusable, StoreUnavailable, OSError.
    """
    data = Path(settings.data_dir)
    if not (data / DATABASE).exists():
        raise DatabaseMissing(f"there is no TerraFlow database in {data}")
    if out.exists() and any(out.iterdir()):
        raise OutNotEmpty(f"{out} is not empty")
    make_folder(out)
    made_at = rfc3339(clock.now())
    for source, name in _small_files(settings, with_keys=with_keys):
        make_folder((out / name).parent)
        shutil.copy2(source, out / name)
    records = back_up(data / DATABASE, out / DATABASE, progress, with_answers=with_answers)
    files = {str(path.relative_to(out)): _sha256(path) for path in sorted(out.rglob("*")) if path.is_file()}
    done = BackedUp(made_at, __version__, records, with_keys, with_answers, files, _elsewhere(settings))
    _write_last(out / MANIFEST, done)
    return done


def _small_files(settings: Settings, *, with_keys: bool) -> Iterator[tuple[Path, str]]:
    data = Path(settings.data_dir)
    for mark in sorted(marks_folder(settings).glob(f"*{SUFFIX}")):
        yield mark, f"{MARKS}/{mark.name}"
    for key in sorted((data / KEYS).glob("*.pem")):
        if with_keys or key.name.endswith(".pub.pem"):
            yield key, f"{KEYS}/{key.name}"
    if with_keys and (data / DEMO).exists():
        yield data / DEMO, DEMO


def _elsewhere(settings: Settings) -> list[str]:
    named = (*settings.bundle_keys, settings.log_key_file, settings.answer_key_file)
    data = Path(settings.data_dir).resolve()
    return [name for name in named if name is not None and data not in Path(name).resolve().parents]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_last(path: Path, done: BackedUp) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(msgspec.to_builtins(done), file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(descriptor)
