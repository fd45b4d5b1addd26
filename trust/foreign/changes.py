"""The changes of an export that any verifier of its formats must refuse.

Each function yields once for every change, with the change in place, and puts the file back before the next.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self


def leaf_changes(export: Path) -> Iterator[str]:
    """A bit of every record, in its bundle."""
    for bundle in sorted((export / "tile" / "entries").rglob("*")):
        if not bundle.is_file():
            continue
        raw, at, number = bundle.read_bytes(), 0, 0
        while at < len(raw):
            length = int.from_bytes(raw[at : at + 2], "big")
            yield from _flipped(bundle, raw, at + 2 + (number * 131) % length)
            at, number = at + 2 + length, number + 1


def checkpoint_changes(export: Path) -> Iterator[str]:
    """A bit of every byte of the latest checkpoint's text, its signature left as it is."""
    note = export / "checkpoint"
    raw = note.read_bytes()
    for at in range(raw.index(b"\n\n") + 1):
        yield from _flipped(note, raw, at)


def payload_changes(export: Path) -> Iterator[str]:
    """A bit of every seventh byte of the statement's payload, and another type, its signature left as it is."""
    path = export / "statement.dsse.json"
    raw = path.read_bytes()
    envelope = json.loads(raw)
    payload = base64.b64decode(envelope["payload"])
    for at in range(0, len(payload), 7):
        changed = payload[:at] + bytes([payload[at] ^ 1 << at % 8]) + payload[at + 1 :]
        path.write_text(json.dumps({**envelope, "payload": base64.b64encode(changed).decode()}))
        yield f"payload byte {at}"
    path.write_text(json.dumps({**envelope, "payloadType": "application/json"}))
    yield "another payload type"
    path.write_bytes(raw)


def _flipped(path: Path, raw: bytes, at: int) -> Iterator[str]:
    path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
    yield f"{path.name} byte {at}"
    path.write_bytes(raw)


class Verifier:
    """A verifier in a process of its own: one line asks about a folder, one line answers, `accepted` or why not."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words: object) -> str:
        """The answer to a question of these words."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, sep="\t", file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer, "the verifier gave no answer"
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()
