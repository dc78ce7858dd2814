"""Several processes want the same OpenCL program at once: poolrt's store beside pyopencl, both on PoCL.

Both compile the same source with the same options. A process's clock runs from a ready context to the first result. On
PoCL, pyopencl leaves caching to the driver, whose folder all of its processes share here, as they do by default.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import arguments, installed_environment, record, sized
from storms.together import run_together

from poolrt.cachestore import CacheStore

PROCESSES: Final = sized(4, 2)


def main(rounds: int = 3) -> None:
    """Print medians of the median and the slowest process, cold and warm, alternating."""
    cold: dict[str, list[list[float]]] = {"poolrt": [], "pyopencl": []}
    warm: dict[str, list[list[float]]] = {"poolrt": [], "pyopencl": []}
    builds: list[int] = []
    title = f"Storm: {PROCESSES} processes, one OpenCL program (pyopencl {version('pyopencl')})"
    environment = installed_environment(POCL_MAX_PTHREAD_COUNT="1")
    for _ in range(sized(rounds, 1)):
        folder = tempfile.mkdtemp(prefix="poolrt-storm-")
        environment |= {"POCL_CACHE_DIR": f"{folder}/pocl", "XDG_CACHE_HOME": f"{folder}/cache"}
        Path(folder, "pocl").mkdir()
        try:
            for name in cold:
                process = ("opencl_process.py", [name, f"{folder}/home"], PROCESSES, environment)
                answers = run_together(*process)
                if isinstance(answers, str):
                    record(title, [f"skipped: {answers}"])
                    return
                cold[name].append([item["seconds"] for item in answers])
                if name == "poolrt":
                    builds.append(sum(item["created"] for item in answers))
                again: Any = run_together(*process)
                warm[name].append([item["seconds"] for item in again])
        finally:
            CacheStore.connect(home=f"{folder}/home").down()
            shutil.rmtree(folder)
    lines = [f"programs built, cold: poolrt {builds} (goal: 1)"]
    for label, storms in (("cold", cold), ("warm", warm)):
        middle = {name: statistics.median(map(statistics.median, found)) for name, found in storms.items()}
        last = {name: statistics.median(map(max, found)) for name, found in storms.items()}
        lines += [
            f"{label}, {which}: {_beside(found)}" for which, found in (("median process", middle), ("last", last))
        ]
    record(title, lines)


def _beside(found: dict[str, float]) -> str:
    ours, theirs = found["poolrt"], found["pyopencl"]
    return f"poolrt {ours * 1e3:.1f} ms, pyopencl {theirs * 1e3:.1f} ms, ratio {ours / theirs:.2f}"


if __name__ == "__main__":
    arguments(__doc__)
    main()
