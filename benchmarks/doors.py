"""The doors for functions and programs of users, beside Numba's `cache=True` and pyopencl.

The first call in a new process; a storm of processes that call the same functions at one moment; a process that loads many
functions. Every rival runs in the same run, in turn with poolrt, on the same functions, each with a folder of its own. The
clock of a process begins after `import numpy`, or after `import numba`, as the line says.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from measure import alternate, arguments, installed_environment, record, sized
from storms import door_opencl

from poolrt.cachestore import CacheStore

PROCESSES: Final = sized(8, 2)
#: Functions of a storm: `storms/door_functions.py` and the other module.
FUNCTIONS: Final = 12
#: Functions of the process that loads many, as copies of some of the storm's with other constants.
MANY: Final = sized(100, 4)
STORMS: Final = Path(__file__).parent / "storms"
MODULES: Final = ["door_functions", "door_distances"]
NUMBA: Final = "njit(cache=True)"
#: Longest wait, in seconds, for a process.
LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Storm:
    """What a storm took from the moment on until the last process had all results, and how many functions were compiled."""

    wall_s: float
    compiled: int


class Doors:
    """A folder with the caches of all doors."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._environment = installed_environment(
            POOLRT_HOME=f"{folder}/home", NUMBA_CACHE_DIR=f"{folder}/numba", OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="2"
        )
        self._environment.pop("POOLRT_REDIS_URL", None)

    def run(
        self, door: str, modules: list[str], processes: int = 1, numba_imported: bool = False
    ) -> list[dict[str, Any]]:
        """Run processes that begin at one moment; return what each printed, and the wall time of all in ``wall``."""
        job = {"modules": modules, "folders": [self.folder], "numba_imported": numba_imported}
        command = [sys.executable, str(STORMS / "door_process.py"), json.dumps(job)]
        environment = {**self._environment, "DOOR": door}
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            for _ in range(processes)
        ]
        for child in children:
            if child.stdout is None or child.stdout.readline() != "ready\n":
                raise SystemExit(f"{command} does not begin")
        begin = time.perf_counter()
        for child in children:
            if child.stdin is not None:
                child.stdin.write("\n")
                child.stdin.flush()
        answers = [json.loads(child.communicate(timeout=LIMIT_S)[0].splitlines()[-1]) for child in children]
        wall = time.perf_counter() - begin
        return [{**answer, "wall": wall} for answer in answers]

    def close(self) -> None:
        """Stop the store's server and remove the folder."""
        CacheStore.connect(home=f"{self.folder}/home").down()
        shutil.rmtree(self.folder)


@contextmanager
def doors() -> Iterator[Doors]:
    """Give doors with empty caches."""
    made = Doors(tempfile.mkdtemp(prefix="poolrt-doors-"))
    try:
        yield made
    finally:
        made.close()


def first() -> Iterator[str]:
    """Measure the first call of a warm function in a new process."""
    with doors() as made:

        def measured(door: str, numba_imported: bool) -> Callable[[], float]:
            def run() -> float:
                (answer,) = made.run(door, ["door_first"], numba_imported=numba_imported)
                if answer["compiled"] or (door == "kernel" and answer["loaded"]):
                    raise SystemExit(f"{door} is not warm: {answer}")
                return float(answer["seconds"])

            return run

        for door in ("numba", "njit", "kernel"):
            made.run(door, ["door_first"])
        found = alternate(
            {
                "kernel": measured("kernel", False),
                "njit": measured("njit", False),
                "numba": measured("numba", False),
                "njit, imported": measured("njit", True),
                "numba, imported": measured("numba", True),
            },
            9,
        )
    ours, theirs = found["njit, imported"], found["numba, imported"]
    yield (
        f"after import numpy: poolrt.kernel {ms(found['kernel'])} (goal: at most 15 ms), {NUMBA} {ms(found['numba'])}, "
        + (f"ratio {found['kernel'] / found['numba']:.3f} (goal: at most 0.05)")
    )
    yield f"after import numpy: poolrt.njit {ms(found['njit'])}, {NUMBA} {ms(found['numba'])}, " + (
        f"ratio {found['njit'] / found['numba']:.2f}"
    )
    yield f"after import numba: poolrt.njit {ms(ours)}, {NUMBA} {ms(theirs)}, ratio {ours / theirs:.2f} (goal: at most 1.1)"


def storm() -> Iterator[str]:
    """Measure processes that call the same functions, in the same order, at one moment."""
    found: dict[str, list[Storm]] = {name: [] for name in ("njit cold", "njit warm", "numba cold", "numba warm")}
    for _ in range(sized(3, 1)):
        with doors() as made:
            for name, storms in found.items():
                answers = made.run(name.split()[0], MODULES, PROCESSES)
                storms.append(Storm(answers[0]["wall"], sum(answer["compiled"] for answer in answers)))
    wall = {name: statistics.median(one.wall_s for one in storms) for name, storms in found.items()}
    compiled = {name: [one.compiled for one in storms] for name, storms in found.items()}
    yield f"compilations, cold: poolrt.njit {compiled['njit cold']} (goal: {FUNCTIONS}), {NUMBA} {compiled['numba cold']}"
    yield f"compilations, warm: poolrt.njit {compiled['njit warm']} (goal: 0), {NUMBA} {compiled['numba warm']}"
    theirs = wall["numba cold"]
    for state, goal in (("cold", "0.5"), ("warm", "0.2")):
        ours = wall[f"njit {state}"]
        yield (
            f"{state}, wall: poolrt.njit {ours:.2f} s, {NUMBA} cold {theirs:.2f} s, ratio {ours / theirs:.2f} "
            f"(goal: at most {goal})"
        )
    yield f"{NUMBA} warm {wall['numba warm']:.2f} s, ratio of poolrt.njit warm {wall['njit warm'] / wall['numba warm']:.2f}"


def many() -> Iterator[str]:
    """Measure a process that loads many functions."""
    with doors() as made:
        write_many(Path(made.folder, "door_many.py"))

        def measured(door: str) -> Callable[[], float]:
            def run() -> float:
                (answer,) = made.run(door, ["door_many"], numba_imported=True)
                if answer["compiled"]:
                    raise SystemExit(f"{door} is not warm: {answer}")
                return float(answer["seconds"])

            return run

        cold = {door: made.run(door, ["door_many"])[0] for door in ("njit", "numba")}
        if {answer["compiled"] for answer in cold.values()} != {MANY}:
            raise SystemExit(f"expected {MANY} compilations, got {cold}")
        found = alternate({"poolrt.njit": measured("njit"), NUMBA: measured("numba")}, 5)
    ours, theirs = found["poolrt.njit"], found[NUMBA]
    yield f"after import numba: poolrt.njit {ms(ours)}, {NUMBA} {ms(theirs)}, ratio {ours / theirs:.2f} (goal: at most 1.1)"


def write_many(path: Path) -> None:
    """Write a module with many functions of one text each, which differ in a constant."""
    parts = ["import numpy as np\nfrom door_decorators import njit\n"]
    for number in range(MANY):
        parts.append(
            f"\n@njit\ndef filtered_{number}(signal, taps):\n"
            "    result = np.zeros(signal.shape[0] - taps.shape[0] + 1)\n"
            "    for i in range(result.shape[0]):\n        for j in range(taps.shape[0]):\n"
            f"            result[i] += signal[i + j] * taps[j]\n        result[i] += {number}\n    return result\n"
        )
    parts.append(
        "\ndef call_all():\n    signal, taps = np.ones(9), np.ones(3)\n"
        f"    for number in range({MANY}):\n"
        "        assert globals()[f'filtered_{number}'](signal, taps)[0] == 3 + number\n"
    )
    path.write_text("".join(parts), encoding="utf-8")


def ms(seconds: float) -> str:
    """Return a time in milliseconds."""
    return f"{seconds * 1e3:.1f} ms"


PARTS: Final = {"first": first, "storm": storm, "many": many}


def main(chosen: list[str]) -> None:
    """Print the parts that were chosen."""
    for name, part in PARTS.items():
        if name in chosen:
            record(f"Doors: {name} (numba {version('numba')}, {os.cpu_count()} cores)", list(part()))
    if "opencl" in chosen:
        door_opencl.main()


if __name__ == "__main__":
    main(arguments(__doc__, (*PARTS, "opencl")))
