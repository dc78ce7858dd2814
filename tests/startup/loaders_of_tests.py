"""Loaders of two modules of poolrt in processes that tests start: one that shares kernels, one that compiles none ahead."""

from __future__ import annotations

import importlib.util
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class SharingLoader(Loader):
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


class ColdLoader(Loader):
    """Loads a module whose `warm_up` does nothing."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["warm_up"] = lambda: None
