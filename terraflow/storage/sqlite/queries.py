"""The statements of queries.sql by their names: `SQL["append_leaf"]`."""

from __future__ import annotations

import re
from importlib import resources

_NAMED = re.compile(r"^-- name: (?P<name>[a-z_]+)\n(?P<statement>.*?);\n", re.MULTILINE | re.DOTALL)


def parse_queries(text: str) -> dict[str, str]:
    """Statements by name; raises ValueError if two have one name."""
    found: dict[str, str] = {}
    for match in _NAMED.finditer(text):
        if match["name"] in found:
            raise ValueError(f"two statements are named {match['name']}")
        found[match["name"]] = match["statement"]
    return found


SQL = parse_queries(resources.files(__package__).joinpath("queries.sql").read_text("utf-8"))
