"""Has each Python process that tests start take kernels from the folder of the run, and compile only those it lacks.

Python imports this module when it starts, because tests put this folder into PYTHONPATH. It imports nothing of poolrt: it
acts when a program imports one of two modules. A fork server of creators does not import the compiler in advance, since its
creators rarely need it; `test_creation_errors.py` and `test_make_run.py` have those that do.
"""

import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_CREATION = "poolrt.workers.primitives.creation"
_WARM_UP = "poolrt.workers.kernels.native.warm_up"


class _SharingLoader(Loader):
    """Loads the module of creation and puts the shared compiler in the place of its own."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        place = Path(__file__).with_name("shared_compiler.py")
        spec = importlib.util.spec_from_file_location("shared_compiler_of_tests", place)
        assert spec is not None
        assert spec.loader is not None
        shared = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(shared)
        vars(module)["compile_kernel"] = shared.sharing(vars(module)["compile_kernel"])


class _ColdLoader(Loader):
    """Loads a module whose `warm_up` does nothing."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["warm_up"] = lambda: None


class _Finder(MetaPathFinder):
    """Finds the two modules, and no other."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in (_CREATION, _WARM_UP):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _SharingLoader(spec.loader) if fullname == _CREATION else _ColdLoader()
        return spec


if os.environ.get("KERNELS_OF_TESTS"):
    sys.meta_path.insert(0, _Finder())
