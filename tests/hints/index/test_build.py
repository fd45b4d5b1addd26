"""The build step: without a compiler the install goes on; what is compiled is of these sources, or is not taken."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from terraflow.hints.compiled import mark, stale

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "terraflow" / "hints" / "index"


def hook(root: Path) -> Any:
    """The build hook, on another project's root, as hatchling makes it."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CustomBuildHook(str(root), {}, None, None, "", "wheel")


def test_without_a_compiler_nothing_is_compiled_and_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "terraflow" / "hints" / "index"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    for name in ("heap.py", "heap.pxd"):
        shutil.copy(PACKAGE / name, package)
    (package / "heap.cpython-311-old.so").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CC", "/bin/false")
    build_data: dict[str, Any] = {"artifacts": []}
    hook(tmp_path).initialize("editable", build_data)
    assert list(package.glob("*.so")) == []
    assert build_data == {"artifacts": []}
    assert "was not compiled" in "".join(capsys.readouterr())


def test_what_is_compiled_here_is_of_these_sources() -> None:
    assert not stale(PACKAGE), "run `make setup`"


def test_all_are_compiled_or_none() -> None:
    typed = {path.stem for path in PACKAGE.glob("*.pxd")}
    assert {path.name.partition(".")[0] for path in PACKAGE.glob("*.so")} in (typed, set())


SHOWS = """
import sys
from terraflow.hints.index import arrivals, heap, index, keys, places, runs, table
print(*sorted({module.__file__.rpartition(".")[2] for module in (arrivals, heap, keys, places, runs, table)}))
index.Index(entries_max=8)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the index needs, copied with what is compiled of it."""
    for name in ("terraflow", "terraflow/hints", "terraflow/hints/index"):
        (tmp_path / name).mkdir()
        for file in (ROOT / name).iterdir():
            if file.name in ("__init__.py", "compiled.py", "words.py") or (name.endswith("index") and file.is_file()):
                shutil.copy2(file, tmp_path / name)
    return tmp_path / "terraflow" / "hints" / "index"


def imported(copy: Path) -> tuple[str, str]:
    """The endings of the files that the modules come from, and what was said."""
    done = subprocess.run([sys.executable, "-c", SHOWS], cwd=copy.parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()


def compile_falsely(copy: Path, what: bytes) -> None:
    """Modules as compiled elsewhere, for a machine without a compiler: nobody may load them."""
    for typed in copy.glob("*.pxd"):
        typed.with_name(typed.stem + EXTENSION_SUFFIXES[0]).write_bytes(b"\x7fELF" + what)


def test_modules_compiled_of_other_sources_are_not_taken_and_one_line_says_so(copy: Path) -> None:
    compile_falsely(copy, mark(copy))
    assert not stale(copy)
    (copy / "table.py").write_text((copy / "table.py").read_text() + "\n# newer\n")
    assert stale(copy)
    endings, said = imported(copy)
    assert endings == "py"
    assert said.count("\n") == 0 and said.endswith("make setup")


def test_one_module_of_others_or_none_where_others_are_and_none_is_taken(copy: Path) -> None:
    compile_falsely(copy, mark(copy))
    heap = copy / f"heap{EXTENSION_SUFFIXES[0]}"
    heap.write_bytes(b"")
    assert imported(copy)[0] == "py"
    heap.unlink()
    assert imported(copy)[0] == "py"


def test_where_nothing_is_compiled_nothing_is_said(copy: Path) -> None:
    for compiled in copy.glob("*.so"):
        compiled.unlink()
    assert imported(copy) == ("py", "")


def test_the_build_marks_what_it_compiles(copy: Path) -> None:
    if not list(copy.glob("*.so")):
        assert not stale(copy)
        return
    assert imported(copy) == ("so", "")
