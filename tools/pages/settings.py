"""The reference pages of settings: a plane's and the hint service's fields, their docstrings, their defaults."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Iterator

import msgspec

from terraflow.app.hints_settings import HintsSettings
from terraflow.app.settings import Settings

INTRODUCTION = """# Settings

<!-- Generated from terraflow/app/settings.py by `make fix`. -->

A plane reads one TOML file with flat keys (`terraflow serve --config FILE`). The environment overrides the file:
`TERRAFLOW_<KEY>`, the key in capitals, lists separated by commas. Options of the command override both. Without a
file the defaults hold.

```toml
data_dir = "/var/lib/terraflow"
bind_port = 8443
tls_cert_file = "/etc/terraflow/tls/cert.pem"
tls_key_file = "/etc/terraflow/tls/key.pem"
```

An unknown key refuses to start, in the file and in the environment. The exceptions are the names that Kubernetes
injects for a service called *terraflow* (`TERRAFLOW_PORT*`, `TERRAFLOW_SERVICE_*`). A capability's credentials are no
settings: a bundle names an environment variable (`env:NAME`), and the plane reads that one.

Whatever grows has a bound here. Sizes are in bytes; a unit stands at the end of a key's name (`_s` seconds, `_ms`
milliseconds).

| setting | default | values | meaning |
| --- | --- | --- | --- |"""

HINTS_INTRODUCTION = """# Route hints' settings

<!-- Generated from terraflow/app/hints_settings.py by `make fix`. -->

The route-hint service reads one TOML file (`terraflow hints serve --config FILE`). The environment overrides the file:
`TERRAFLOW_HINTS_<KEY>`, the key in capitals, lists separated by commas; tables stand in the file only. Options of the
command override both. Without a file the defaults hold. Inside a plane, the plane's `hints_file` names this file.

```toml
data_dir = "/var/lib/terraflow-hints"
bind_host = "0.0.0.0"
tls_cert_file = "/etc/terraflow/tls/cert.pem"
tls_key_file = "/etc/terraflow/tls/key.pem"
token_keys = ["/etc/terraflow/keys/producers.pub.pem"]
policy_dir = "/etc/terraflow/policies"
```

An unknown key refuses to start, in the file and in the environment.

| setting | default | values | meaning |
| --- | --- | --- | --- |"""

_WORDS = {float: "number", str: "text", int: "integer", bool: "true or false", type(None): "none"}


def page() -> str:
    """The page of a plane's settings, as Markdown."""
    return "\n".join((INTRODUCTION, *_rows(Settings), ""))


def hints_page() -> str:
    """The page of the hint service's settings, as Markdown."""
    return "\n".join((HINTS_INTRODUCTION, *_rows(HintsSettings), ""))


def docstrings(kind: type[msgspec.Struct] = Settings) -> dict[str, str]:
    """What each field's docstring says, its white space made single; a field without one raises KeyError later."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            found[field.target.id] = " ".join(ast.literal_eval(after.value).split())
    return found


def _rows(kind: type[msgspec.Struct]) -> Iterator[str]:
    meanings, defaults = docstrings(kind), kind()
    hints = typing.get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        value = _value(getattr(defaults, name))
        meaning = meanings[name].replace("|", "\\|")
        yield f"| `{name}` | {value} | {_kind(hints[name])} | {meaning} |"


def _value(default: object) -> str:
    if default is None:
        return "none"
    if isinstance(default, tuple | dict):
        return ", ".join(f"`{item}`" for item in default) or "empty"
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    return f"`{default}`"


def _kind(hint: object) -> str:
    """A type in words: `integer, 1 or more`."""
    if typing.get_origin(hint) is typing.Annotated:
        kind, *metas = typing.get_args(hint)
        return ", ".join((_kind(kind), *(_bounds(meta) for meta in metas if isinstance(meta, msgspec.Meta))))
    if typing.get_origin(hint) is tuple:
        return f"list of {_kind(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is dict:
        return f"table of {_kind(typing.get_args(hint)[1])}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "tables"
    if typing.get_args(hint):
        return " or ".join(_kind(part) for part in typing.get_args(hint) if part is not type(None))
    return _WORDS[typing.cast("type", hint)]


def _bounds(meta: msgspec.Meta) -> str:
    if meta.pattern is not None:
        return ", ".join(f"`{word}`" for word in meta.pattern.strip("^()$").split("|")).replace("|", "\\|")
    if meta.gt is not None:
        return f"above {meta.gt}"
    return f"{meta.ge} or more" if meta.le is None else f"{meta.ge} to {meta.le}"
