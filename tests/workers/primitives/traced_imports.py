"""A process that prints, as JSON, the files of hashed rooms that each implementation's modules and kernels import.

Every import statement that is executed is recorded with the module that executes it, those in functions included; names
are traced to the modules that packages have them from.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "poolrt.workers"
EDGES: dict[str, set[str]] = {}
import_statement = builtins.__import__


def record(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import, and record which modules the importer has got its names from."""
    found = import_statement(name, globals, locals, fromlist, level)
    importer = str((globals or {}).get("__name__", ""))
    if importer.startswith(PACKAGE) and found.__name__.startswith(PACKAGE):
        for item in fromlist or ():
            EDGES.setdefault(importer, set()).add(home(found, item))
    return found


def home(module: ModuleType, name: str) -> str:
    """Return the module that a name comes from: itself one, re-exported by a package, or of the module."""
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return value.__name__
    if hasattr(module, "__path__"):
        for other in sorted(EDGES.get(module.__name__, ())):
            if vars(sys.modules[other]).get(name) is value:
                return other
        return str(getattr(value, "__module__", module.__name__))
    return module.__name__


def closure(roots: Sequence[str], rooms: tuple[str, ...]) -> set[str]:
    """Return the files of rooms that modules are in or have imported from, directly or through files of rooms."""
    found: set[str] = set()
    left, seen = list(roots), set(roots)
    while left:
        module = left.pop()
        if path(module).startswith(rooms):
            found.add(path(module))
            left += EDGES.get(module, set()) - seen
            seen.update(left)
    return found


def path(module: str) -> str:
    """Return where a module's file is in the folder of workers."""
    root = Path(str(sys.modules[PACKAGE].__file__)).parent
    return Path(str(sys.modules[module].__file__)).relative_to(root).as_posix()


def main() -> None:
    builtins.__import__ = record
    operations = import_module("poolrt.workers.desc.op_desc")
    framework = import_module("poolrt.workers.implementations.primitive_desc")
    sources = import_module("poolrt.workers.primitives.sources")
    cost_model = import_module("poolrt.workers.implementations.cost_model").__name__
    compilers = {
        "cpu": "poolrt.workers.kernels.native.compiler.codegen",
        "opencl": "poolrt.workers.kernels.opencl.build",
    }
    found = {}
    for engine, compiler in compilers.items():
        import_module(compiler)
        for kind in (*operations.OPERATIONS, *operations.INTERNAL):
            for implementation in framework.implementations(kind, engine):
                files = sources.source_files(engine, kind, implementation)
                roots = [cost_model, compiler, type(implementation).__module__]
                if hasattr(implementation, "native"):
                    roots.append(type(implementation.native).__module__)
                kernels = [file for file in files if file.startswith("kernels/native/") and engine == "cpu"]
                roots += [f"{PACKAGE}.{file.removesuffix('.py').replace('/', '.')}" for file in kernels]
                for kernel in roots:
                    import_module(kernel)
                found[f"{engine}:{kind}:{implementation.name}"] = (sorted(closure(roots, sources._ROOMS)), files)
    print(json.dumps(found))


main()
