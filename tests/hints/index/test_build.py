"""The build step: without a compiler the install goes on; what is compiled is of these sources."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

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


def test_a_compiled_module_is_no_older_than_its_source() -> None:
    compiled = {path.name.partition(".")[0]: path for path in PACKAGE.glob("*.so")}
    stale = [
        source.name
        for name, path in compiled.items()
        for source in (PACKAGE / f"{name}.py", PACKAGE / f"{name}.pxd")
        if source.stat().st_mtime > path.stat().st_mtime
    ]
    assert stale == [], "run `make setup`"


def test_all_are_compiled_or_none() -> None:
    typed = {path.stem for path in PACKAGE.glob("*.pxd")}
    assert {path.name.partition(".")[0] for path in PACKAGE.glob("*.so")} in (typed, set())
