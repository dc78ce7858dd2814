"""Loaders of modules of poolrt in processes that tests start: they share kernels, compile none ahead, or change the processor."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

#: The variable that names the instructions which the processor is to have in all tests, if not its own.
INSTRUCTIONS: Final = "INSTRUCTIONS_OF_TESTS"


class ChangingLoader(Loader):
    """Loads a module and changes it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self.change(vars(module))

    def change(self, names: dict[str, Any]) -> None:
        """Change what the module defines."""
        raise NotImplementedError


class SharingLoader(ChangingLoader):
    """Loads the module of creation and puts the shared compiler in the place of its own."""

    def change(self, names: dict[str, Any]) -> None:
        place = Path(__file__).with_name("shared_compiler.py")
        spec = importlib.util.spec_from_file_location("shared_compiler_of_tests", place)
        assert spec is not None
        assert spec.loader is not None
        shared = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(shared)
        compile_kernel = names["compile_kernel"]
        if os.environ.get(INSTRUCTIONS):
            from tests.workers.kernels.native.lacking_instructions import for_this_host

            compile_kernel = for_this_host(compile_kernel)
        names["compile_kernel"] = shared.sharing(compile_kernel)


class PretendingLoader(ChangingLoader):
    """Loads the module of ISA levels and has the processor be one with the instructions that tests ask for."""

    def change(self, names: dict[str, Any]) -> None:
        level, *extensions = os.environ[INSTRUCTIONS].split("+")
        levels = names["ISA_LEVELS"]
        order = list(levels)
        flags = frozenset(extensions).union(*(levels[each] for each in order[: order.index(level) + 1]))

        def cpu_flags() -> frozenset[str]:
            return flags

        vars(cpu_flags)["of_this_host"] = names["cpu_flags"]
        names["cpu_flags"] = cpu_flags
        if any(name.startswith("amx_") for name in extensions):
            names["may_use_tiles"] = lambda: True
            from tests.workers.kernels.native.tile_emulator import emulate_tiles

            emulate_tiles()


class NumbaLoader(ChangingLoader):
    """Loads the compiler of users' functions and has it compile for the processor that there is."""

    def change(self, names: dict[str, Any]) -> None:
        compile_function = names["compile_function"]

        def compiled(name: str, function: Callable[..., None], signature: Any, isa: str) -> bytes:
            from tests.workers.kernels.native.lacking_instructions import had

            binary: bytes = compile_function(name, function, signature, "+".join(had(isa)))
            return binary

        names["compile_function"] = compiled


class ColdLoader(Loader):
    """Loads a module whose `warm_up` does nothing."""

    def __init__(self, loader: Loader) -> None:
        """Take the loader that is not used."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["warm_up"] = lambda: None
