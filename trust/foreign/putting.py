"""Putting an export to a foreign verifier: it must accept it as it is, and refuse every change."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from terraflow.evidence.proof import prove
from tests.evidence.sample import KEY, TENANT, export_of
from trust.foreign.changes import Verifier

SIZES = (1, 255, 256, 300, 600)
PROVEN = (0, 1, 255, 256, 299, 512, 599)


def make_export(folder: Path) -> tuple[Path, Path]:
    """An export, and a folder with the tlog-proofs of some of its records."""
    export, proofs = folder / "export", folder / "proofs"
    ledger = export_of(SIZES, export)
    proofs.mkdir()
    for index in PROVEN:
        proof = prove(ledger, TENANT, index, KEY.public_key())
        assert proof is not None
        (proofs / f"{index}.tlog-proof").write_bytes(proof)
    return export, proofs


def tool(name: str, how: str) -> str:
    """The path of a tool that this run cannot do without; exits with 1 when it is missing."""
    found = shutil.which(name)
    if found is None:
        sys.exit(f"{name} is not installed: {how}")
    return found


def put(name: str, verifier: Verifier, question: Sequence[object], changes: dict[str, Iterator[str]]) -> None:
    """Ask about the export as it is and with each change; exits with 1 at a wrong answer."""
    if (answer := verifier.ask(*question)) != "accepted":
        sys.exit(f"{name} does not accept the export: {answer}")
    for kind, each in changes.items():
        count = 0
        for change in each:
            count += 1
            if verifier.ask(*question) == "accepted":
                sys.exit(f"{name} accepts a change of {kind}: {change}")
        if count == 0:
            sys.exit(f"there was no change of {kind} to refuse")
        print(f"{name}: {count} changes of {kind}, all refused")
    if (answer := verifier.ask(*question)) != "accepted":
        sys.exit(f"{name} does not accept the export any more: {answer}")
