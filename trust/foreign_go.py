"""Go's sumdb/note and tlog accept an export with its proofs, and refuse every changed leaf and checkpoint text.

The packages are Debian's (golang-go, golang-golang-x-mod-dev) or any others in GOPATH; nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.evidence.sample import VERIFIER_KEY
from trust.foreign.changes import Verifier, checkpoint_changes, leaf_changes
from trust.foreign.putting import make_export, put, tool

SOURCE = Path(__file__).with_name("foreign") / "verify.go"
DEBIAN = "/usr/share/gocode"


def main() -> None:
    """Build the verifier and put an export to it."""
    go = tool("go", "apt-get install golang-go golang-golang-x-mod-dev")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = os.pathsep.join(filter(None, [os.environ.get("GOPATH"), DEBIAN]))
        environment = {**os.environ, "GO111MODULE": "off", "GOPATH": paths, "GOCACHE": str(folder / "cache")}
        built = subprocess.run([go, "build", "-o", folder / "verify", SOURCE], env=environment, check=False)
        if built.returncode != 0:
            sys.exit("the Go verifier does not build: are golang-go and golang-golang-x-mod-dev installed?")
        export, proofs = make_export(folder)
        with Verifier([str(folder / "verify")]) as verifier:
            changes = {"a leaf": leaf_changes(export), "the checkpoint's text": checkpoint_changes(export)}
            put("Go's note and tlog", verifier, [export, proofs, VERIFIER_KEY], changes)


if __name__ == "__main__":
    main()
