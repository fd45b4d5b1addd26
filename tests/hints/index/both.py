"""The index, interpreted and compiled: the behaviour suite runs over each that there is."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = "terraflow.hints.index"


class _Sources(MetaPathFinder):
    """Finds the package's modules as sources only, whatever is compiled beside them."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != PACKAGE or name == "said":
            return None
        found = find_spec(PACKAGE)
        assert found is not None and found.origin is not None
        return spec_from_file_location(fullname, Path(found.origin).with_name(f"{name}.py"))


def interpreted() -> ModuleType:
    """`terraflow.hints.index.index` with its whole package read from sources, beside the installed modules."""
    installed = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(f"{PACKAGE}.")}
    said = f"{PACKAGE}.said"
    if said in installed:
        sys.modules[said] = installed[said]
    finder = _Sources()
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(f"{PACKAGE}.index")
    finally:
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if name.startswith(f"{PACKAGE}.") and name != said:
                del sys.modules[name]
        sys.modules.update(installed)


PLAIN = interpreted()
INSTALLED = importlib.import_module(f"{PACKAGE}.index")
COMPILED = importlib.import_module(f"{PACKAGE}.runs").COMPILED
MODULES = {"interpreted": PLAIN} | ({"compiled": INSTALLED} if COMPILED else {})
