"""What protoc makes of the hints' .proto: the messages, and their types."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTO = "terraflow/hints/wire/inferencecache.proto"
FILES = tuple(PROTO.replace(".proto", ending) for ending in ("_pb2.py", "_pb2.pyi"))


@cache
def generated() -> dict[str, str]:
    """Each file's text by its path below the root; RuntimeError when protoc refuses the .proto."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi")]
        known = Path(grpc_tools.__file__).parent / "_proto"
        if protoc.main(["protoc", f"-I{ROOT}", f"-I{known}", *outputs, str(ROOT / PROTO)]) != 0:
            raise RuntimeError(f"protoc refuses {PROTO}")
        return {path: (Path(folder) / path).read_text("utf-8") for path in FILES}


def one(path: str) -> str:
    """The text of one of FILES."""
    return generated()[path]


TEXTS = tuple((path, partial(one, path)) for path in FILES)
"""Rows for the table of generated files."""
