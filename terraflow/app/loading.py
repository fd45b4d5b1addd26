"""Settings of a kind: one TOML file, each key overridden by an environment variable, overridden by flags.

An unknown key refuses to start, wherever it stands, and a refusal names the key and where its value came from.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from terraflow.core.forms import instead

Kind = TypeVar("Kind", bound=msgspec.Struct)
Origin = Mapping[str, str]
"""How to speak of a key whose value came from the environment."""


class BadSettings(Exception):
    """The settings cannot be used; the message names the key and what to do."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where settings of one kind come from."""

    prefix: str
    """Of the environment's variables; the rest of a name is the key in capitals."""
    elsewhere: Callable[[str], bool]
    """Whether a variable of that prefix belongs to something else."""
    page: str
    """Where the known keys are listed."""


def load(
    kind: type[Kind], source: Source, file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> tuple[Kind, Origin]:
    """Settings of `kind` from the file, the environment and `flags` that are not None. Raises BadSettings."""
    values = _from_file(file)
    given = {key: value for key, value in flags.items() if value is not None}
    found = _from_environment(kind, source, environment)
    values = values | found | given
    # Where a value came from, for whoever must mend it: a variable is easily forgotten.
    origin = {key: f"{key} (from {source.prefix}{key.upper()})" for key in found if key not in given}
    unknown = sorted(set(values) - set(kind.__struct_fields__))
    if unknown:
        raise BadSettings("; ".join(_unknown(kind, source, key, origin.get(key, key)) for key in unknown))
    try:
        settings = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadSettings(_wrong(kind, values, str(error), origin)) from None
    for key in kind.__struct_fields__:
        value = getattr(settings, key)
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise BadSettings(f"{origin.get(key, key)} is empty: give a value, or leave it out")
    return settings, origin


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BadSettings(f"cannot read the settings file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{file} is not TOML: {error}") from None


def _from_environment(kind: type[Kind], source: Source, environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith(source.prefix) or source.elsewhere(name):
            continue
        key = name.removeprefix(source.prefix).lower()
        found[key] = [part.strip() for part in text.split(",") if part.strip()] if _is_list(kind, key) else text
    return found


def _is_list(kind: type[Kind], key: str) -> bool:
    fields = kind.__struct_fields__
    return key in fields and isinstance(kind.__struct_defaults__[fields.index(key)], tuple)


def _unknown(kind: type[Kind], source: Source, key: str, named: str) -> str:
    near = get_close_matches(key, kind.__struct_fields__, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"see {source.page} for the known ones"
    return f"unknown setting {named}: {hint}"


def _wrong(kind: type[msgspec.Struct], values: Mapping[str, Any], said: str, origin: Origin) -> str:
    """What msgspec says of a value (``Expected `int`, got `str` - at `$.running_max```), with the setting first, the
    table of several that it stands in, and what to write instead."""
    path, what = plainly(kind, said)
    if not path:
        return said
    key, *rest = path
    number = rest[0] if rest and isinstance(rest[0], int) else None
    inside = ".".join(str(step) for step in (rest if number is None else rest[1:]) if step != _SOME_KEY)
    if not inside:
        return f"{origin.get(str(key), key)}: {what}"
    row = str(key) if number is None else f"[[{key}]] number {number + 1}{_name_of(values, path)}"
    return f"{row}: {inside}: {what}"


def _name_of(values: Mapping[str, Any], path: Sequence[str | int]) -> str:
    rows = values.get(str(path[0]))
    row: Any = rows[path[1]] if isinstance(rows, list) and isinstance(path[1], int) else None
    if not isinstance(row, dict):
        return ""
    return next((f" ({field} {row[field]})" for field in ("replica", "name") if isinstance(row.get(field), str)), "")


_SOME_KEY = "..."
"""What msgspec has for a key of a mapping."""
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[(\.\.\.)\]")
_FIELD = re.compile(r"(?:unknown|missing required) field `([^`]*)`")


def plainly(kind: type[msgspec.Struct], said: str) -> tuple[tuple[str | int, ...], str]:
    """The place and the words of what msgspec says of a value that should have been a `kind`."""
    what, _, where = said.partition(" - at `$")
    path = [int(index) if index else name or key for name, index, key in _STEP.findall(where.rstrip("`"))]
    path += _FIELD.findall(what)
    remedy = instead(kind, path, what)
    if "unknown field" in what:
        words = "is no key of it"
    elif "missing required" in what:
        words = "is missing"
    elif remedy:
        given = what.partition("Invalid enum value ")[2]
        return tuple(path), f"{given} is not known: give {remedy}" if given else f"give {remedy}"
    else:
        words = f"{what[0].lower()}{what[1:].replace('`', '')}"
    return tuple(path), f"{words}: {remedy}" if remedy else words


def check_tls_pair(cert_file: str | None, key_file: str | None) -> None:
    """A certificate and its key come together. Raises BadSettings."""
    if (cert_file is None) != (key_file is None):
        raise BadSettings("tls_cert_file and tls_key_file go together: give both, or neither")


def is_loopback(host: str) -> bool:
    """Whether an address, or `localhost`, is reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
