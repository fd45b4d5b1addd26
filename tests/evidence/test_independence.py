"""The verifier stands alone: it imports nothing of the writer, nor of anything else that the writer is made of."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import terraflow.verifier

FOLDER = Path(terraflow.verifier.__file__).parent


def test_its_files_import_the_standard_library_cryptography_and_each_other() -> None:
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names | {"cryptography"} or name.startswith("terraflow.verifier.")


def test_running_it_loads_nothing_else_of_the_plane() -> None:
    listing = (
        "import sys, terraflow.verifier.export, terraflow.verifier.proof\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('terraflow', 'msgspec', 'typer')))"
    )
    ran = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert {name for name in loaded if not name.startswith("terraflow.verifier")} == {"terraflow"}
    assert "terraflow.verifier.export" in loaded
