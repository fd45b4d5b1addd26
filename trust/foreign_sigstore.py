"""@sigstore/verify accepts an export's signed statement, and refuses every changed payload, leaf and checkpoint.

It is installed from npm into a temporary folder, at the versions and digests of `foreign/package-lock.json`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from tests.evidence.sample import KEY
from trust.foreign.changes import Verifier, checkpoint_changes, leaf_changes, payload_changes
from trust.foreign.putting import make_export, put, tool

FOREIGN = Path(__file__).with_name("foreign")


def main() -> None:
    """Install the verifier and put an export to it."""
    node, npm = tool("node", "Node.js 20 or later"), tool("npm", "it comes with Node.js")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("package.json", "package-lock.json", "verify.js"):
            shutil.copy(FOREIGN / file, folder)
        installed = subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=False)
        if installed.returncode != 0:
            sys.exit("@sigstore/verify could not be installed from npm")
        key = folder / "key.pem"
        key.write_bytes(
            KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        export, _ = make_export(folder)
        with Verifier([node, str(folder / "verify.js")]) as verifier:
            changes = {
                "the payload": payload_changes(export),
                "a leaf": leaf_changes(export),
                "the checkpoint's text": checkpoint_changes(export),
            }
            put("@sigstore/verify", verifier, [export, key], changes)


if __name__ == "__main__":
    main()
