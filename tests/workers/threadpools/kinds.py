"""Every kind of threadpool by name, those of the library and those of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from poolrt.workers.engines.object_loader import NativeKernel
from poolrt.workers.threadpools.executor import ExecutorPool
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.native import NativePool
from poolrt.workers.threadpools.sequential import SequentialPool
from poolrt.workers.threadpools.threads import ThreadsPool
from tests.workers import compiled

from .checking import CheckingPool
from .helping import HelpingPool
from .own_asynchronous import OwnAsynchronousPool

Loop = tuple[NativeKernel, NativeKernel, NativeKernel, NativeKernel]
KINDS: Final = (
    "sequential", "threads", "threads asynchronous", "native", "native asynchronous", "executor", "own", "checking",
)  # fmt: skip
#: Every kind with each number of threads that it can have.
CASES: Final = [(kind, threads) for kind in KINDS for threads in ((1,) if kind in ("sequential", "own") else (1, 2, 7))]


class OwnPool(ThreadpoolInterface):
    """A pool as a user may write it: three methods in plain Python."""

    def __init__(self) -> None:
        self._inside = False

    def get_num_threads(self) -> int:
        return 3

    def get_in_parallel(self) -> bool:
        return self._inside

    def parallel_for(self, n: int, fn: Callable[[int, int], None]) -> None:
        before, self._inside = self._inside, True
        try:
            for i in reversed(range(n)):
                fn(i, n)
        finally:
            self._inside = before


def region_loop() -> Loop:
    """Return the kernels of native pools."""
    loop, submit, nest, clock = compiled.region_loop("loop", "submit", "nest", "clock")
    return loop, submit, nest, clock


@contextmanager
def made(kind: str, threads: int, loop: Loop, seed: int = 0) -> Iterator[ThreadpoolInterface]:
    """Open a pool of a kind, a ``helping`` or an ``own asynchronous`` one; ``seed`` is that of a checking one."""
    asynchronous = kind.endswith("asynchronous")
    if kind.startswith("native"):
        with NativePool(threads, asynchronous, loop) as native:
            yield native
    elif kind.startswith("threads"):
        with ThreadsPool(threads, asynchronous) as pool:
            yield pool
    elif kind == "checking":
        with CheckingPool(threads, seed) as checking:
            yield checking
    elif kind == "helping":
        with HelpingPool(threads) as helping:
            yield helping
    elif kind == "own asynchronous":
        with OwnAsynchronousPool(threads) as own:
            yield own
    elif kind == "executor":
        with ThreadPoolExecutor(threads) as executor:
            yield ExecutorPool(executor, threads)
    else:
        yield SequentialPool() if kind == "sequential" else OwnPool()
