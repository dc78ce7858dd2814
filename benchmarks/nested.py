"""Nested parallelism: a task of a pool executes four products on that pool, on two threads and on one, in one run.

Each kind of asynchronous pool is measured, those of the tests too, which a user may write. Then what the number of jobs
costs: one product, and one short step, cut into more and more jobs on two threads of a native pool.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1]))  # pools of the tests

import numpy as np
from measure import alternate, arguments, record, seconds, sized

from poolrt import Arg, Eltwise, Engine, Matmul, Memory, MemoryDesc, NativePool, Primitive, Stream, StreamAttr
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.jobs import set_default_jobs
from tests.workers.threadpools.kinds import made, region_loop

KINDS: Final = ("native asynchronous", "threads asynchronous", "checking", "own asynchronous")
SYNCHRONOUS: Final = ("native", "threads", "executor")
SIZE: Final = sized(1024, 128)
PRODUCTS: Final = 4
ROUNDS: Final = 9
GOAL: Final = 0.6
JOBS: Final = (1, 2, 4, 8, 16, 64, 256)


class Work:
    """Four products and a short step, with their memory."""

    def __init__(self) -> None:
        self.engine = Engine("cpu")
        md, short = MemoryDesc((SIZE, SIZE), "f32"), MemoryDesc((64, 1024), "f32")
        product = Matmul.PrimitiveDesc(self.engine, md, md, None, md).create()
        step = Eltwise.PrimitiveDesc(self.engine, short, short, "relu").create()
        self.products = [(product, self._memories(product)) for _ in range(PRODUCTS)]
        self.step = (step, self._memories(step))

    def stream(self, pool: ThreadpoolInterface) -> Stream:
        """Return a stream that computes on a pool."""
        attr = StreamAttr("cpu")
        attr.set_threadpool(pool)
        return Stream(self.engine, attr)

    def _memories(self, primitive: Primitive) -> dict[int, Memory]:
        found = {arg: Memory(md, self.engine) for arg, md in primitive.pd.memories().items() if arg != Arg.SCRATCHPAD}
        rng = np.random.default_rng(0)
        for memory in found.values():
            memory.numpy()[:] = rng.random(memory.desc.dims, np.float32)
        return found


def nested(work: Work) -> None:
    """Print what four products in a task take on two threads, and on one."""
    loop = region_loop()
    with ExitStack() as opened:
        contestants: dict[str, Callable[[], float]] = {}
        for kind in (*KINDS, *SYNCHRONOUS):
            for threads in (1, 2):
                pool = opened.enter_context(made(kind, threads, loop))
                contestants[f"{kind} {threads}"] = _in_task(work, pool)
        for contestant in contestants.values():
            contestant()
        found = alternate(contestants, ROUNDS)
    lines = []
    for kind in (*KINDS, *SYNCHRONOUS):
        one, two = found[f"{kind} 1"], found[f"{kind} 2"]
        goal = f" (goal: at most {GOAL})" if kind in KINDS else ""
        lines.append(
            f"{kind}: {one * 1e3:.1f} ms on one thread, {two * 1e3:.1f} ms on two, ratio {two / one:.2f}{goal}"
        )
    record(f"A task that executes {PRODUCTS} products of {SIZE} x {SIZE} on its own pool", lines)


def _in_task(work: Work, pool: ThreadpoolInterface) -> Callable[[], float]:
    stream = work.stream(pool)

    def task(_i: int, _n: int) -> None:
        for primitive, memories in work.products:
            primitive.execute(stream, memories)

    def run() -> None:
        pool.parallel_for(1, task)
        pool.wait()

    return lambda: seconds(run)


def jobs(work: Work) -> None:
    """Print what a product and a short step take when they are cut into more and more jobs."""
    lines = []
    with NativePool(2) as pool:
        pool.least_job_ns = 0
        stream = work.stream(pool)
        steps = (("a product", work.products[0], 3), ("relu of 256 KiB", work.step, 200))
        for title, (primitive, memories), repeat in steps:
            contestants = {
                str(number): _cut(number, lambda p=primitive, m=memories: p.execute(stream, m), repeat)  # type: ignore[misc]
                for number in (0, *JOBS)
            }
            for contestant in contestants.values():
                contestant()
            found = alternate(contestants, ROUNDS)
            times = ", ".join(f"{number}: {found[str(number)] * 1e6:.0f}" for number in JOBS)
            lines.append(f"{title}, us by number of jobs: {times}; the pool's own number: {found['0'] * 1e6:.0f}")
    record("The number of jobs, on a native pool of two threads", lines)


def _cut(number: int, action: Callable[[], object], repeat: int) -> Callable[[], float]:
    def run() -> float:
        set_default_jobs(number)
        try:
            return seconds(action, repeat)
        finally:
            set_default_jobs(0)

    return run


if __name__ == "__main__":
    chosen = arguments(__doc__, ("nested", "jobs"))
    work = Work()
    if "nested" in chosen:
        nested(work)
    if "jobs" in chosen:
        jobs(work)
