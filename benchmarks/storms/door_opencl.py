"""The first program of a new process, and a storm of processes that build the same programs: poolrt beside pyopencl, on PoCL.

On PoCL, pyopencl leaves caching to the driver, whose folder all of its processes share here, as they do by default. So do
poolrt's. Both clocks run from a ready context to the last result. Warm, the processes before have ended.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import arguments, installed_environment, record, sized
from storms.together import run_together

from poolrt.cachestore import CacheStore

PROCESSES: Final = sized(4, 2)
PROGRAMS: Final = sized(20, 2)
#: What one round measures, in order: its name, the number of processes and of programs.
STEPS: Final = (("cold", PROCESSES, PROGRAMS), ("warm", PROCESSES, PROGRAMS), ("one program", 1, 1))


def main(rounds: int = 3) -> None:
    """Print medians of the last process of each storm, and of one process with one program, alternating."""
    found: dict[tuple[str, str], list[float]] = {}
    built: list[int] = []
    again: list[int] = []
    failed = 0
    title = f"Doors: {PROCESSES} processes, {PROGRAMS} OpenCL programs (pyopencl {version('pyopencl')})"
    for _ in range(sized(rounds, 1)):
        for door in ("poolrt", "pyopencl"):
            folder = tempfile.mkdtemp(prefix="poolrt-doors-")
            Path(folder, "pocl").mkdir()
            environment = installed_environment(
                POOLRT_HOME=f"{folder}/home", POCL_CACHE_DIR=f"{folder}/pocl", XDG_CACHE_HOME=f"{folder}/cache",
                POCL_MAX_PTHREAD_COUNT="1",
            )  # fmt: skip
            environment.pop("POOLRT_REDIS_URL", None)
            try:
                for step, processes, programs in STEPS:
                    answers = run_together("door_opencl_process.py", [door, str(programs)], processes, environment)
                    if isinstance(answers, str):
                        record(title, [f"skipped: {answers}; ratio 0"])
                        return
                    found.setdefault((step, door), []).append(max(answer["seconds"] for answer in answers))
                    counts = sum((Counter(answer["counts"]) for answer in answers), Counter[str]())
                    failed += sum(answer["failed"] for answer in answers)
                    if door == "poolrt":
                        (built if step == "cold" else again).append(counts["created"])
            finally:
                CacheStore.connect(home=f"{folder}/home").down()
                shutil.rmtree(folder)
    median = {name: statistics.median(times) for name, times in found.items()}
    lines = [f"programs built by poolrt, cold: {built} (goal: {PROGRAMS}), warm: {again} (goal: 0)"]
    if failed:
        lines.append(f"builds by pyopencl that failed and were repeated: {failed}")
    for step, _, _ in STEPS:
        ours, theirs = median[step, "poolrt"], median[step, "pyopencl"]
        what = "first program of a new process, warm" if step == "one program" else f"{step}, last process"
        lines.append(f"{what}: poolrt {ours * 1e3:.0f} ms, pyopencl {theirs * 1e3:.0f} ms, ratio {ours / theirs:.2f}")
    ours, theirs = median["warm", "poolrt"], median["cold", "pyopencl"]
    lines.append(f"poolrt warm beside pyopencl cold: ratio {ours / theirs:.2f}")
    record(title, lines)


if __name__ == "__main__":
    arguments(__doc__)
    main()
