"""One process that gets functions through one of the doors: it imports a module, calls every function, checks the results.

The module's `call_all` does the latter. The clock begins when the parent says so, after ``import numpy``, and after
``import numba`` if the job says so.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

import numpy  # noqa: F401 - before the clock begins


def main(job: dict[str, Any]) -> None:
    """Do it, and print how long it took, and how many functions were compiled here."""
    sys.path[:0] = job["folders"]
    if job["numba_imported"]:
        import_module("numba")
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    compiled: list[str] = []
    if os.environ["DOOR"] != "kernel":
        count_compilations(compiled, job["modules"])
    import_module(job["modules"][0]).call_all()
    seconds = time.perf_counter() - begin
    loaded = sorted({"numba", "llvmlite"} & sys.modules.keys())
    print(json.dumps({"seconds": seconds, "compiled": len(compiled), "loaded": loaded}))


def count_compilations(compiled: list[str], modules: list[str]) -> None:
    """Have the names of the functions of some modules noted when Numba compiles them."""
    compiler: Any = import_module("numba.core.compiler")
    plain = compiler.compile_extra

    def compile_extra(typing_context: Any, target_context: Any, function: Any, *rest: Any, **options: Any) -> Any:
        if getattr(function, "__module__", None) in modules:
            compiled.append(function.__qualname__)
        return plain(typing_context, target_context, function, *rest, **options)

    compiler.compile_extra = compile_extra


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
