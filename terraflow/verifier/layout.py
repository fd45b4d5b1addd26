"""Which files an export of a given size has, and which files a directory has.

1. The names follow from the log's size alone, so a file too many and a file too few are both seen.
2. Only plain files and the directories that hold them may be there; a link is refused, not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from terraflow.verifier.formats import Refused
from terraflow.verifier.tree import WIDTH

STATEMENT = "statement.dsse.json"
CHECKPOINT = "checkpoint"
HISTORY = "checkpoints.jsonl"
RECORDS = "records.jsonl"


def bundle_name(index: int, size: int) -> str:
    """The file of records 256 * index and on, in a log of `size`."""
    return f"tile/entries/{_tail(index, size)}"


def tile_name(level: int, index: int, size: int) -> str:
    """The file of a tile of hashes in a log of `size`."""
    return f"tile/{level}/{_tail(index, size >> (8 * level))}"


def _tail(index: int, count: int) -> str:
    digits = f"{index:03d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[at : at + 3] for at in range(0, len(digits), 3)]
    width = min(count - index * WIDTH, WIDTH)
    return "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]]) + (f".p/{width}" if width < WIDTH else "")


def names_of(size: int) -> set[str]:
    """Every file of an export of `size` records, except the statement that lists them."""
    names = {CHECKPOINT, HISTORY, RECORDS}
    names.update(bundle_name(index, size) for index in range(-(-size // WIDTH)))
    level = 0
    while count := size >> (8 * level):
        names.update(tile_name(level, index, size) for index in range(-(-count // WIDTH)))
        level += 1
    return names


def names_in(directory: Path) -> set[str]:
    """Every file below a directory, as a relative path with slashes."""
    return set(_walk(directory, ""))


def _walk(directory: Path, prefix: str) -> Iterator[str]:
    with os.scandir(directory) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    if not entries and prefix:
        raise Refused(prefix, "is an empty directory, which no export has")
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(directory / entry.name, f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            yield prefix + entry.name
        else:
            raise Refused(prefix + entry.name, "is neither a plain file nor a directory")
