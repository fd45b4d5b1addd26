"""Every long proof, one after the other; each is a module of this package that has a `main`.

    python -m trust          all of them
    python -m trust NAME …   only those

A proof runs in a process of its own, prints its own figures, and has failed when it does not exit with 0.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class Proof(NamedTuple):
    """A module with a `main`, and the first line of what it says of itself."""

    name: str
    summary: str


def proofs(folder: Path = FOLDER) -> list[Proof]:
    """The proofs of a folder, by name."""
    found = []
    for file in sorted(folder.glob("[!_]*.py")):
        module = ast.parse(file.read_text("utf-8"))
        if any(isinstance(part, ast.FunctionDef) and part.name == "main" for part in module.body):
            found.append(Proof(file.stem, (ast.get_docstring(module) or "").partition("\n")[0]))
    return found


def main(names: Sequence[str], folder: Path = FOLDER) -> int:
    """Run the named proofs, or all; 1 if one failed, 2 if one is unknown."""
    known = proofs(folder)
    unknown = sorted(set(names) - {proof.name for proof in known})
    if unknown:
        print(f"no such proof: {', '.join(unknown)}; there are {', '.join(proof.name for proof in known)}")
        return 2
    chosen = [proof for proof in known if not names or proof.name in names]
    failed = []
    for at, proof in enumerate(chosen, start=1):
        print(f"[{at}/{len(chosen)}] {proof.name}: {proof.summary}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-u", "-m", f"{folder.name}.{proof.name}"]
        code = subprocess.run(command, cwd=folder.parent, check=False).returncode
        if code != 0:
            failed.append(proof.name)
        print(
            f"[{at}/{len(chosen)}] {'holds' if code == 0 else 'FAILED'}, {time.monotonic() - began:.0f} s\n", flush=True
        )
    print(f"{len(chosen) - len(failed)} of {len(chosen)} hold" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
