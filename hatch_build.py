"""The build step: compile what terraflow/hints/index has a .pxd for, in place: an editable install finds it there too.

1. It MUST NOT fail the install: without a compiler or Python's headers the same sources run interpreted, and a line
   says so. A compiled module that is older than its source never stays: all are removed first.
2. One source: what is compiled is the .py that runs interpreted; its .pxd adds the types. C files stay under build/.
3. Each module holds a mark of all sources, so that the import can tell (terraflow/hints/compiled.py).
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "terraflow/hints/index"
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "binding": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}


class CustomBuildHook(BuildHookInterface[Any]):
    """Called by hatchling before it makes a wheel, editable or not."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; on success the wheel is this platform's and holds the compiled modules."""
        root = Path(self.root)
        for old in (root / PACKAGE).glob("*.so"):
            old.unlink()
        try:
            compile_in_place(root)
        except (Exception, SystemExit) as error:
            for half in (root / PACKAGE).glob("*.so"):
                half.unlink()
            self.app.display_warning(f"the index of route hints was not compiled ({type(error).__name__}): slower")
            return
        build_data["artifacts"].append(f"{PACKAGE}/*.so")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_in_place(root: Path) -> None:
    """Put a compiled module beside each source that has a .pxd. Raises what Cython or the compiler raise."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    compiled = runpy.run_path(str(Path(__file__).parent / "terraflow" / "hints" / "compiled.py"))
    marked = root / "build" / "cython" / "mark.c"
    marked.parent.mkdir(parents=True, exist_ok=True)
    marked.write_text(f'const char terraflow_mark[] = "{compiled["mark"](root / PACKAGE).decode()}";\n')
    names = sorted(pxd.stem for pxd in (root / PACKAGE).glob("*.pxd"))
    modules = [
        Extension(
            f"{PACKAGE.replace('/', '.')}.{name}",
            [f"{PACKAGE}/{name}.py", str(marked.relative_to(root))],
            extra_compile_args=["-O2", "-g0", "-w"],
        )
        for name in names
    ]
    c_files = str(root / "build" / "cython")
    found = cythonize(modules, compiler_directives=DIRECTIVES, build_dir=c_files, quiet=True, force=True)
    command = build_ext(Distribution({"name": "terraflow", "ext_modules": found}))
    command.inplace = True
    command.parallel = 2
    command.force = True
    command.build_temp = str(root / "build" / "compiled")
    command.ensure_finalized()
    command.run()
