"""Eight processes want the same twelve Numba kernels at once: poolrt's creators beside Numba's own `cache=True`.

Cold, no process has the kernels; the clock runs from the start of the first process until the last one has all results. Warm,
they are cached; each process's clock runs from the end of `import numpy`, when all begin together. Both compute the same
functions, Numba in loops over arrays (`numba_kernels.py`), since it cannot compile poolrt's kernels. Each process begins with
another kernel, so that Numba's find many of each other's.
"""

from __future__ import annotations

import _socket
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from measure import arguments, installed_environment, record, sized

from poolrt.cachestore import CacheStore
from poolrt.workers.ipc.channel import Channel, pair
from poolrt.workers.ipc.protocol import Kind
from poolrt.workers.processes.fork_server import start_fork_server

PROCESSES: Final = sized(8, 2)
HERE: Final = Path(__file__).parent
#: Eltwise algorithms; each is one kernel.
KERNELS: Final = [
    "relu", "tanh", "elu", "square", "abs", "sqrt", "logistic", "exp", "log", "clip", "gelu_erf", "hardswish",
]  # fmt: skip
#: Longest wait, in seconds, for a storm.
LIMIT_S: Final = 300.0


@dataclass(frozen=True)
class Storm:
    """What a storm took in all, what its processes took after `import numpy`, and how many kernels were compiled."""

    wall_s: float
    process_s: list[float]
    compiled: int

    @property
    def median_s(self) -> float:
        """The median of the processes' times."""
        return statistics.median(self.process_s)


#: Runs one storm, cold or warm.
Run = Callable[[bool], Storm]


def main(rounds: int = 3) -> None:
    """Print medians of cold and warm storms, alternating."""
    cold: dict[str, list[Storm]] = {"poolrt": [], "numba": []}
    warm: dict[str, list[Storm]] = {"poolrt": [], "numba": []}
    environment = installed_environment()
    for _ in range(sized(rounds, 1)):
        # Not a TemporaryDirectory: it would be removed by each forked process that ends.
        folder = tempfile.mkdtemp(prefix="poolrt-storm-")
        for name, storm in (("poolrt", _poolrt), ("numba", _numba)):
            with storm(folder, environment) as run:
                cold[name].append(run(True))
                warm[name].append(run(False))
        shutil.rmtree(folder)
    wall = {name: statistics.median(s.wall_s for s in storms) for name, storms in cold.items()}
    process = {name: statistics.median(s.median_s for s in storms) for name, storms in warm.items()}
    compiled = {name: [s.compiled for s in storms] for name, storms in cold.items()}
    again = {name: [s.compiled for s in storms] for name, storms in warm.items()}
    record(
        f"Storm: {PROCESSES} processes, the same {len(KERNELS)} kernels (numba {version('numba')})",
        [
            f"compilations, cold: poolrt {compiled['poolrt']} (goal: {len(KERNELS)}), numba {compiled['numba']}",
            f"compilations, warm: poolrt {again['poolrt']}, numba {again['numba']}",
            f"cold, wall: poolrt {wall['poolrt']:.2f} s, numba {wall['numba']:.2f} s, "
            f"ratio {wall['poolrt'] / wall['numba']:.2f} (goal: at most 0.50)",
            f"warm, after import numpy: poolrt {process['poolrt'] * 1e3:.0f} ms, numba {process['numba'] * 1e3:.0f} ms, "
            f"ratio {process['poolrt'] / process['numba']:.3f} (goal: at most 0.100)",
        ],
    )


@contextmanager
def _poolrt(folder: str, environment: dict[str, str]) -> Iterator[Run]:
    options = {"home": f"{folder}/home"}

    def run(cold: bool) -> Storm:
        before = 0 if cold else _creations(options)
        begin = time.perf_counter()
        creators = _Creators(options) if cold else None
        answers = _processes("poolrt_process.py", {"store": options}, environment, creators, begin_together=not cold)
        wall = time.perf_counter() - begin
        if creators is not None:
            creators.close()
        compiled = _creations(options) - before
        if sum(item["compiled"] for item in answers) != compiled:
            raise SystemExit(f"the store counts {compiled} creations, its users counted others: {answers}")
        return Storm(wall, [item["seconds"] for item in answers], compiled)

    try:
        yield run
    finally:
        CacheStore.connect(**options).down()


def _creations(options: dict[str, Any]) -> int:
    with CacheStore.connect(**options) as store:
        store.ping()  # without Redis, `stats` would tell of this node alone
        return store.stats()["creations"]


class _Creators:
    """Creators forked from one fork server that has the compiler loaded, as a coordinator starts them; one a process."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._pid, sock = start_fork_server()
        self._plain = Channel(sock, accepts_fds=True)
        ours, theirs = pair()
        self._fork_child(self._plain, "preloaded", theirs)
        self._preloaded = Channel(ours, accepts_fds=True)
        self._pairs = [pair() for _ in range(PROCESSES)]

    def give(self, number: int) -> _socket.socket:
        """Return the connection of one process to its creator, which may be used before there is one."""
        return self._pairs[number][0]

    def start(self) -> None:
        """Have the creators forked, as soon as the fork server has its compiler."""
        while (message := self._preloaded.receive(block=True)) is None:
            pass
        if message[0] != Kind.READY:
            raise SystemExit(f"the fork server did not come up: {message}")
        for ours, theirs in self._pairs:
            ours.close()
            self._fork_child(self._preloaded, "creator", theirs)

    def close(self) -> None:
        """End the fork servers and with them the creators."""
        self._preloaded.close()
        self._plain.close()
        os.waitpid(self._pid, 0)

    def _fork_child(self, fork_server: Channel, role: str, theirs: _socket.socket) -> None:
        with closing(theirs):
            options = {"descriptors": 1, "environment": {}, "store": self._options, "verbose": "0"}
            fork_server.send([Kind.FORK, 1, role, options], (theirs.fileno(),))


@contextmanager
def _numba(folder: str, environment: dict[str, str]) -> Iterator[Run]:
    module = Path(folder, "storm_kernels.py")
    # Numba's files are beside the module.
    shutil.copyfile(HERE / "numba_kernels.py", module)

    def run(cold: bool) -> Storm:
        begin = time.perf_counter()
        answers = _processes("numba_process.py", {"module": str(module)}, environment, None, begin_together=not cold)
        wall = time.perf_counter() - begin
        return Storm(wall, [item["seconds"] for item in answers], sum(item["compiled"] for item in answers))

    yield run


def _processes(
    script: str, job: dict[str, Any], environment: dict[str, str], creators: _Creators | None, begin_together: bool
) -> list[dict[str, Any]]:
    """Run the processes of a storm and return what each has to tell; together, they begin after `import numpy`."""
    children: list[subprocess.Popen[str]] = []
    for number in range(PROCESSES):
        sock = creators.give(number) if creators is not None else None
        request = {**job, "kernels": KERNELS[number:] + KERNELS[:number], "socket": sock.fileno() if sock else -1}
        child = subprocess.Popen(
            [sys.executable, str(HERE / script), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            pass_fds=[sock.fileno()] if sock else [],
        )
        children.append(child)
    if creators is not None:
        creators.start()
    for child in children:
        if begin_together and child.stdout is not None and child.stdout.readline() != "ready\n":
            raise SystemExit(f"{script} does not begin")
    for child in children:
        if child.stdin is not None:
            child.stdin.write("\n")
            child.stdin.flush()
    return [json.loads(child.communicate(timeout=LIMIT_S)[0].splitlines()[-1]) for child in children]


if __name__ == "__main__":
    arguments(__doc__)
    main()
