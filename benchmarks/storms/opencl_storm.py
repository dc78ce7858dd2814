"""Several processes want the same OpenCL program at once: poolrt's store beside pyopencl, both on PoCL.

Both compile the same source with the same options. A process's clock runs from a ready context to the first result. On
PoCL, pyopencl leaves caching to the driver, whose folder all of its processes share here, as they do by default.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import arguments, installed_environment, record, sized

from poolrt.cachestore import CacheStore

PROCESSES: Final = sized(4, 2)
HERE: Final = Path(__file__).parent
LIMIT_S: Final = 300.0


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
                command = [sys.executable, str(HERE / "opencl_process.py"), name, f"{folder}/home"]
                answers = _processes(command, environment)
                if isinstance(answers, str):
                    record(title, [f"skipped: {answers}"])
                    return
                cold[name].append([item["seconds"] for item in answers])
                if name == "poolrt":
                    builds.append(sum(item["created"] for item in answers))
                again: Any = _processes(command, environment)
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


def _processes(command: list[str], environment: dict[str, str]) -> list[dict[str, Any]] | str:
    """Run the processes together and return what each has to tell, or the reason why they cannot run here."""
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(PROCESSES)
    ]
    said = {child.stdout.readline().strip() if child.stdout is not None else "" for child in children}
    for child in children:
        if child.stdin is not None and "ready" in said:
            child.stdin.write("\n")
            child.stdin.flush()
    texts = [child.communicate(timeout=LIMIT_S)[0] for child in children]
    if len(said) != 1 or any(child.returncode for child in children):
        raise SystemExit(f"the processes of a storm have failed: {command}")
    return [json.loads(text) for text in texts] if "ready" in said else said.pop()


if __name__ == "__main__":
    arguments(__doc__)
    main()
