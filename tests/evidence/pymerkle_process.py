"""A process that verifies the tree of an export with pymerkle, and uses nothing of ours.

A line asks: the export's folder, and a folder of tlog-proofs, between a tab. A line answers: `accepted`, or what is
wrong. pymerkle is under the GPL: it is run here and nowhere linked to the plane.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

from pymerkle import InclusionProof, InmemoryTree, InvalidProof, verify_consistency, verify_inclusion


def states(folder: Path) -> list[tuple[int, bytes]]:
    """Size and root of every published checkpoint; the signatures are another verifier's business."""
    notes = [json.loads(line)["checkpoint"] for line in (folder / "checkpoints.jsonl").read_text().splitlines()]
    lines = [note.split("\n") for note in [*notes, (folder / "checkpoint").read_text()]]
    return [(int(line[1]), base64.b64decode(line[2])) for line in lines]


def records(folder: Path) -> list[bytes]:
    """The records out of the bundles."""
    found = []
    for bundle in sorted(path for path in (folder / "tile" / "entries").rglob("*") if path.is_file()):
        raw = bundle.read_bytes()
        while raw:
            end = 2 + int.from_bytes(raw[:2], "big")
            found.append(raw[2:end])
            raw = raw[end:]
    return found


def verify(folder: Path, proofs: Path) -> None:
    """Raises InvalidProof."""
    tree = InmemoryTree(algorithm="sha256")
    tree.append_entries(records(folder))
    published = states(folder)
    size, root = published[-1]
    for prior_size, prior_root in published:
        proof = tree.prove_consistency(prior_size, size)
        verify_consistency(prior_root, root, proof, prior_size=prior_size, later_size=size, algorithm="sha256")
    for file in sorted(proofs.iterdir()):
        lines = file.read_text().split("\n")
        index = int(lines[1].removeprefix("index "))
        path = [base64.b64decode(line) for line in lines[2 : lines.index("")]]
        leaf = tree.get_leaf(index + 1)
        rule = tree.prove_inclusion(index + 1, size).rule
        proof = InclusionProof("sha256", True, size, index + 1, rule, [leaf, *path])
        verify_inclusion(leaf, root, proof, index=index + 1, size=size, algorithm="sha256")


for asked in sys.stdin:
    folder, proofs = asked.rstrip("\n").split("\t")
    try:
        verify(Path(folder), Path(proofs))
        print("accepted", flush=True)
    except (InvalidProof, ValueError) as trouble:
        print(f"refused: {trouble!r}", flush=True)
