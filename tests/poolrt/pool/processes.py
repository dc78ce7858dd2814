"""Looking at processes from outside: who lives, who descends from whom, and waiting for that to change."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import poolrt
from poolrt.cachestore.files import FilesTier
from poolrt.connection.server import connect_socket
from poolrt.errors import CoordinatorLost
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.engines.target import cpu_target

#: Seconds that anything in these tests may take before it counts as a hang.
BOUND_S = 20.0
#: The shape of a tensor for which a step of tanh takes 0.1 ms on a fast processor; seconds of a run of many such steps.
LONG = (2048, 512)
LONG_S = 0.3
#: Seconds between two looks.
_PAUSE_S = 0.005


def wait_until(condition: Callable[[], bool], what: str, seconds: float = BOUND_S) -> None:
    """Poll a condition; fail with what was waited for where a look that begins after the bound finds it false.

    How long a look takes, or how late this process gets to it on a busy machine, is no fault of those that are looked at. They
    wait for processors, too: what this process oversleeps is added to the bound.
    """
    until = time.monotonic() + seconds
    while True:
        late = time.monotonic() > until
        if condition():
            return
        if late:
            pytest.fail(f"not within {seconds} s: {what}")
        begin = time.monotonic()
        time.sleep(_PAUSE_S)
        overslept = time.monotonic() - begin - _PAUSE_S
        until += overslept if overslept > _PAUSE_S else 0.0


def connects(path: Path) -> bool:
    """Return whether a server listens at a path."""
    try:
        connect_socket(path).close()
    except CoordinatorLost:
        return False
    return True


def _state(place: Path) -> str:
    """Return the state of a process or thread by its folder in /proc; `X` if it has gone."""
    try:
        text = (place / "stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return text.rpartition(")")[2].split()[0]


def is_alive(pid: int) -> bool:
    """Return whether a process exists and has not ended (a zombie has)."""
    return _state(Path(f"/proc/{pid}")) not in ("Z", "X")


def has_stopped(pid: int) -> bool:
    """Return whether each thread of a process has stopped or ended."""
    return all(_state(task) in ("T", "Z", "X") for task in Path(f"/proc/{pid}/task").glob("*"))


def children(pid: int) -> list[int]:
    """Return the living child processes of a process."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has gone, and its children are another's
    for task in tasks:
        try:
            text = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [int(child) for child in text.split()]
    return [child for child in found if is_alive(child)]


def descendants(pid: int) -> list[int]:
    """Return all living processes below a process."""
    return [found for child in children(pid) for found in (child, *descendants(child))]


def command(pid: int) -> str:
    """Return the command line of a process, with a zero after each word; nothing where it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a living process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def below(pid: int, levels: int) -> list[int]:
    """Return the processes so many levels below another.

    Below a coordinator (`pid` of a pool's statistics): 1 fork server, 2 workers, preloaded fork server and creators that do not
    compile for the processor, 3 other creators.
    """
    found = [pid]
    for _ in range(levels):
        found = [child for pid in found for child in children(pid)]
    return found


def family() -> list[int]:
    """Return all living processes below this one."""
    return descendants(os.getpid())


def workers_of(pool: poolrt.Pool, killed: Collection[int] = ()) -> list[int]:
    """Return the process ids of a pool's workers once all are up.

    The coordinator may still name a process that was killed a moment ago: tell it in ``killed``, and the answer is waited for
    that no longer has it.
    """
    found: list[int] = []

    def are_up() -> bool:
        found[:] = [worker["pid"] for worker in pool.stats()["workers"]]
        return 0 not in found and not set(found) & set(killed)

    wait_until(are_up, "all workers are up, and those that were killed are replaced")
    return found


def relu_graph(shape: tuple[int, ...] = (4, 8), name: str = "relu", step: str = "relu") -> poolrt.Graph:
    """Return a graph of one step: y = relu(x). Another ``step`` has a kernel of its own, another shape does not."""
    graph = poolrt.Graph(name)
    graph.output("y", graph.eltwise(graph.input("x", shape, "float32"), step))
    return graph


def load_long(pool: poolrt.Pool) -> poolrt.Model:
    """Return a model whose runs go by rings and take some tenths of a second; its input x has the shape `LONG`."""

    def load(steps: int) -> poolrt.Model:
        graph = poolrt.Graph(f"{steps} steps")
        x = graph.input("x", LONG)
        for _ in range(steps):
            x = graph.eltwise(x, "tanh")
        graph.output("y", x)
        return pool.load(graph)

    def run() -> float:
        begin = time.perf_counter()
        model.run(x=np.zeros(LONG, np.float32))
        return time.perf_counter() - begin

    model = load(100)
    run()
    # How many steps that are depends on the processor
    model = load(min(3000, max(300, int(100 * LONG_S / min(run() for _ in range(3))))))
    for _ in range(5):
        run()
    return model


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Stop processes for the time of a block, which begins when they have stopped."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: all(map(has_stopped, pids)), "the processes have stopped")
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def until_there(path: Path) -> str:
    """Return what ``exec`` can be given in a worker, which need not import these tests for it: it ends when a file is there."""
    code = f"import os, time; until = time.monotonic() + {3 * BOUND_S}\n"
    return code + f"while not os.path.exists({str(path)!r}) and time.monotonic() < until: time.sleep(0.005)"


@contextmanager
def creation_held(home: str, graph: poolrt.Graph) -> Iterator[None]:
    """Hold a node's file lease to create a graph's only primitive: creators of that wait, for the term of a lease.

    So a creator can be met while it is at its creation, however long that takes and however late a test comes to look.
    """
    (key,) = lower(parse(graph.to_wire()[0]), {"cpu": cpu_target()}).keys
    lease = FilesTier(f"{home}/default", 1 << 30).file_lease(key.digest, BOUND_S).take(time.monotonic() + BOUND_S)
    assert lease is not None
    try:
        yield
    finally:
        lease.end()
