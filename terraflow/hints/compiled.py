"""Whether the compiled modules beside the index's sources are made of these sources, all of them.

1. The build (hatch_build.py) puts the digest of all sources into every module that it compiles. One module without it,
   or none where others are, and all of them run from their source: never some of each.
2. A line says so, once, at the import. Where nothing is compiled nothing is said.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

log = logging.getLogger("terraflow.hints")


def mark(folder: Path) -> bytes:
    """What a module that is compiled of the folder's sources has in it."""
    digest = hashlib.sha256()
    for typed in sorted(folder.glob("*.pxd")):
        for source in (typed, typed.with_suffix(".py")):
            text = source.read_bytes()
            digest.update(b"%s %d\n" % (source.name.encode(), len(text)) + text)
    return b"terraflow sources " + digest.hexdigest().encode()


def stale(folder: Path) -> bool:
    """Whether there are compiled modules, and not all are of these sources."""
    names = [typed.stem for typed in folder.glob("*.pxd")]
    compiled = [file for name in names for end in EXTENSION_SUFFIXES if (file := folder / f"{name}{end}").exists()]
    if not compiled:
        return False
    sought = mark(folder)
    return len(compiled) != len(names) or any(sought not in file.read_bytes() for file in compiled)


def choose(path: str) -> None:
    """For a package's `__init__`: have its modules imported from their sources where what is compiled is stale."""
    if stale(Path(path)):
        sys.path_importer_cache[path] = FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))
        log.warning("the compiled index of route hints is not of these sources, which run slower: make setup")
