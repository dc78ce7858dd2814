"""Looking at processes from outside: who lives, who descends from whom, and waiting for that to change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import poolrt

#: Seconds that anything in these tests may take before it counts as a hang.
BOUND_S = 20.0


def wait_until(condition: Callable[[], bool], what: str, seconds: float = BOUND_S) -> None:
    """Poll a condition; fail with what was waited for after the bound."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and has not ended (a zombie has)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def children(pid: int) -> list[int]:
    """Return the living child processes of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [child for child in found if is_alive(child)]


def descendants(pid: int) -> list[int]:
    """Return all living processes below a process."""
    return [found for child in children(pid) for found in (child, *descendants(child))]


def at_depth(levels: int) -> list[int]:
    """Return the processes so many levels below this one: coordinator, nursery, workers or warm nursery, creators."""
    found = [os.getpid()]
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


def relu_graph(shape: tuple[int, ...] = (4, 8), name: str = "relu") -> poolrt.Graph:
    """Return a graph of one step: y = relu(x)."""
    graph = poolrt.Graph(name)
    graph.output("y", graph.eltwise(graph.input("x", shape, "float32"), "relu"))
    return graph
