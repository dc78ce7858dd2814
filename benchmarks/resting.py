"""What a pool of two workers costs while it rests after a run: processor time, and memory (PSS) beside Python with NumPy.

Proportional memory counts a page that several processes hold once in all. It is read for each process of the pool while all of
them live, and so is that of the rival: a process of Python that has imported NumPy, and nothing more.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from measure import arguments, installed_environment, record, sized

#: Seconds that the pool rests.
_REST_S: Final = sized(10.0, 0.5)
#: Bytes of a worker at most.
_GOAL: Final = 40 << 20

_CLIENT: Final = """
import numpy
import poolrt

with poolrt.Pool(workers=2, progress=False) as pool:
    graph = poolrt.Graph("relu")
    graph.output("y", graph.eltwise(graph.input("x", (64, 100)), "relu"))
    model = pool.load(graph)
    for _ in range(10):
        model.run(x=numpy.ones((64, 100), "float32"))
    print(flush=True)
    input()
"""
_NUMPY: Final = "import numpy; print(flush=True); input()"


@contextmanager
def _ready(code: str, environment: dict[str, str]) -> Iterator[int]:
    """Give the number of a process of Python that has printed a line and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise SystemExit("a program ended before it was ready")
            yield process.pid
        finally:
            try:
                process.communicate(b"\n", timeout=30)
            finally:
                process.kill()


def _started_by(pid: int) -> list[int]:
    paths = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in paths for child in path.read_text(encoding="ascii").split()]


def _processes_of(client: int) -> dict[int, str]:
    """Return the processes of a client's pool, and what each of them is."""
    found = {client: "the client"}
    for coordinator in _started_by(client):
        found[coordinator] = "the coordinator"
        for started in _started_by(coordinator):
            found[started] = "the nursery"
            found |= dict.fromkeys(_started_by(started), "a worker")
    return found


def _processor_s(pid: int) -> float:
    """Return the time that the threads of a process have run, in seconds."""
    paths = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text(encoding="ascii").split()[0]) for path in paths) / 1e9


def _proportional_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def main() -> None:
    """Print the share of a processor, and the memory of each process."""
    with tempfile.TemporaryDirectory() as home:
        environment = installed_environment(POOLRT_HOME=home)
        try:
            with _ready(_CLIENT, environment):
                pass  # the kernel is created
            with _ready(_CLIENT, environment) as client, _ready(_NUMPY, environment) as rival:
                processes = _processes_of(client)
                time.sleep(sized(1.0, 0.0))  # until what follows a start has ended
                before = {pid: _processor_s(pid) for pid in processes}
                begin = time.monotonic()
                time.sleep(_REST_S)
                rested = time.monotonic() - begin
                used = {pid: _processor_s(pid) - before[pid] for pid in processes}
                memory = {pid: _proportional_bytes(pid) for pid in processes}
                alone = _proportional_bytes(rival)
        finally:
            subprocess.run(
                [sys.executable, "-m", "poolrt", "cache", "down"], env=environment, check=True, capture_output=True
            )
    share = sum(used.values()) / rested
    record(
        f"A pool of two workers that rests for {rested:.0f} s",
        [
            *(
                f"{name}: {used[pid] * 1e3:.2f} ms of processor time, {memory[pid] / (1 << 20):.1f} MiB"
                for pid, name in processes.items()
            ),
            f"all of them: ratio {share:.5f} to one processor",
            f"python, import numpy: {alone / (1 << 20):.1f} MiB",
            f"the largest of them to that, ratio {max(memory.values()) / alone:.2f} "
            f"(goal: at most {_GOAL >> 20} MiB a worker)",
        ],
    )


if __name__ == "__main__":
    arguments(__doc__)
    main()
