"""One process of a storm: compile each kernel with Numba's `cache=True`, or load it from there; run it, check it."""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import expected
import numpy


def main(job: dict[str, Any]) -> None:
    """Do it, and tell how long it took and how many kernels were compiled."""
    module = Path(job["module"])
    sys.path.insert(0, str(module.parent))
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    import numba

    kernels = import_module(module.stem)
    src = expected.source()
    results = {name: numpy.empty_like(src) for name in job["kernels"]}
    compiled = 0
    for name, dst in results.items():
        compiler = numba.njit(kernels.SIGNATURE, cache=True, nogil=True, error_model="numpy")
        kernel = compiler(getattr(kernels, name))
        compiled += sum(kernel.stats.cache_misses.values())
        kernel(src.ravel(), dst.ravel(), *expected.PARAMETERS.get(name, (0.0, 0.0)))
    seconds = time.perf_counter() - begin
    for name, dst in results.items():
        expected.check(name, dst)
    print(json.dumps({"seconds": seconds, "compiled": compiled}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
