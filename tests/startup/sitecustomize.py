"""Has each Python process that tests start take kernels from the folder of the run, and compile only those it lacks.

Python imports this module when it starts, because tests put this folder into PYTHONPATH. It imports nothing of poolrt: it
acts when a program imports one of two modules. A fork server of creators does not import the compiler in advance, since its
creators rarely need it; `test_creation_errors.py` and `test_make_run.py` have those that do. With the variable
INSTRUCTIONS_OF_TESTS, processes have the instructions that it names, and two more modules are changed.

Tests start thousands of processes: this module imports nothing that Python has not imported before it, which took 25 ms in
each.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_CREATION = "poolrt.workers.primitives.creation"
_WARM_UP = "poolrt.workers.kernels.native.warm_up"
_ISA = "poolrt.workers.engines.isa"
_NUMBA = "poolrt.workers.kernels.native.compiler.numba_codegen"
#: The variable that names the instructions that the host is to have for all tests, if not its own.
_INSTRUCTIONS = "INSTRUCTIONS_OF_TESTS"


class _Finder:
    """Finds these modules, and no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname not in (_CREATION, _WARM_UP, *((_ISA, _NUMBA) if os.environ.get(_INSTRUCTIONS) else ())):
            return None
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec, spec_from_file_location

        # Processes of pytest-xdist take their path of modules from the first, which does not have this folder.
        own = spec_from_file_location(
            "loaders_of_tests", os.path.join(os.path.dirname(__file__), "loaders_of_tests.py")
        )
        assert own is not None
        assert own.loader is not None
        loaders = module_from_spec(own)
        own.loader.exec_module(loaders)
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            made = {
                _CREATION: loaders.SharingLoader,
                _WARM_UP: loaders.ColdLoader,
                _ISA: loaders.PretendingLoader,
                _NUMBA: loaders.NumbaLoader,
            }[fullname]
            spec.loader = made(spec.loader)
        return spec


if os.environ.get(_INSTRUCTIONS):
    # Where the compiler for instructions that the host lacks is.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
if os.environ.get("KERNELS_OF_TESTS") or os.environ.get(_INSTRUCTIONS):
    sys.meta_path.insert(0, _Finder())
