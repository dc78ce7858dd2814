"""What one client's costly messages cost another: the 99th percentile of its runs while they come, and without them.

Each kind of message is sent by a process of its own, a thousand times or for some seconds. The two times alternate. For
comparison, the same beside processes that send nothing and only compute: that much is the system's scheduler.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Final

sys.path.insert(0, os.path.dirname(__file__))
sys.path.append(os.path.dirname(os.path.dirname(__file__)))

from measure import arguments, record, sized

import poolrt
from tests.poolrt.pool.attacks import KINDS

COUNT: Final = 1000
#: Goal for the ratio of the two times.
GOAL: Final = 2.0


def p99(seconds: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(seconds, n=100)[98]


class Neighbour:
    """A client that runs a small model again and again."""

    def __init__(self, path: str) -> None:
        self.pool = poolrt.connect(path)
        graph = poolrt.Graph("relu")
        graph.output("y", graph.eltwise(graph.input("x", (4, 8)), "relu"))
        self._model = self.pool.load(graph)
        self._x = self.pool.empty((4, 8))
        self._x[:] = 1

    def times_until(self, done: threading.Event) -> list[float]:
        """Return the seconds of each run until an event is set, and of 100 runs at least."""
        found: list[float] = []
        while not done.is_set() or len(found) < 100:
            begin = time.perf_counter()
            self._model.run(x=self._x)
            found.append(time.perf_counter() - begin)
        return found


def alone(neighbour: Neighbour, seconds: float) -> float:
    """Return the 99th percentile of runs without another client, in seconds."""
    done = threading.Event()
    threading.Timer(seconds, done.set).start()
    return p99(neighbour.times_until(done))


def attacked(neighbour: Neighbour, path: str, kind: str, seconds: float) -> tuple[float, int]:
    """Return the 99th percentile of runs while messages of a kind come, in seconds, and the number of messages."""
    done, sent = threading.Event(), [0]
    command = [sys.executable, "-m", "tests.poolrt.pool.attacks", path, kind, str(COUNT), str(seconds)]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=root, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as attacker:
        attacker.stdout.readline()  # it has started, which takes a processor

        def attack() -> None:
            try:
                sent[0] = int(attacker.communicate("\n")[0].split()[0])
            finally:
                done.set()

        thread = threading.Thread(target=attack)
        thread.start()
        times = neighbour.times_until(done)
        thread.join()
    return p99(times), sent[0]


def beside_computing(neighbour: Neighbour, count: int, seconds: float) -> float:
    """Return the 99th percentile of runs beside so many processes that compute, in seconds."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        return alone(neighbour, seconds)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main() -> None:
    """Print and record the ratio for each kind."""
    chosen = arguments(__doc__, tuple(KINDS))
    seconds = sized(20.0, 0.1)
    lines = []
    with tempfile.TemporaryDirectory(prefix="poolrt-messages-") as folder:
        path = os.path.join(folder, "poolrt.sock")
        words = ["serve", "--workers", "2", "--socket", path]
        server = subprocess.Popen([sys.executable, "-m", "poolrt", *words], stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(path):
                if server.poll() is not None:
                    raise SystemExit("the server has exited")
                time.sleep(0.05)
            neighbour = Neighbour(path)
            with neighbour.pool:
                for count in (1, 2):
                    quiet, busy = alone(neighbour, seconds / 4), beside_computing(neighbour, count, seconds / 4)
                    line = f"for comparison: {quiet * 1e3:.2f} ms alone, {busy * 1e3:.2f} ms beside {count} processes"
                    lines.append(f"{line} that compute: ratio {busy / quiet:.2f}")
                for kind in chosen:
                    before = alone(neighbour, seconds / 8)
                    busy, sent = attacked(neighbour, path, kind, seconds)
                    quiet = (before + alone(neighbour, seconds / 8)) / 2
                    line = f"{kind}: {quiet * 1e3:.2f} ms alone, {busy * 1e3:.2f} ms beside {sent} messages"
                    lines.append(f"{line}: ratio {busy / quiet:.2f} (goal: at most {GOAL:g})")
        finally:
            server.terminate()
            server.wait(30)
    record("Messages", lines)


if __name__ == "__main__":
    main()
