"""Creation beside execution: 20 primitives are created while 20 others execute on the same threadpool of two threads.

The rival is the same work with a wait in between, on the same pool. The new kernels are in no cache, each repeat makes
others, and executing takes as many seconds of a core as creating.

*In tasks*: one task creates its primitives one after the other, another one executes, in one region or in two. The
creating one waits for a compiler, a process of its own on one core, and the executing one uses one core. One after
the other thus leaves a core idle throughout, and together they could take 0.5 of that.

*Asynchronously*: the calling thread submits executions, which use both cores, and creates: a primitive after each one of
the others, or all after it has waited. One after the other leaves a core idle while it creates; together, two threads
and a compiler share two cores. This form has no goal: nothing is created on the pool.

*A task each*: every creation and every execution is a task of its own. Two of them are at work all the time in either
order, so there is nothing to gain; the ratio is the cost of mixing them.

The ratio that two cores allow follows from the cores that were busy one after the other, those of compilers included.
"""

from __future__ import annotations

import itertools
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from measure import alternate, arguments, record, seconds, sized

from poolrt import (
    Arg,
    Binary,
    Convolution,
    Eltwise,
    Engine,
    Matmul,
    Memory,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Softmax,
    Stream,
    StreamAttr,
)
from poolrt.cachestore import CacheStore
from poolrt.workers.execution.primitive_desc_iface import PrimitiveDescIface
from poolrt.workers.threadpools.interface import ThreadpoolInterface
from poolrt.workers.threadpools.native import NativePool

#: Primitives that are created, and others that execute.
KERNELS: Final = sized(20, 2)
CORES: Final = 2
ROUNDS: Final = 5
GOAL: Final = 0.75
#: The new ones differ in size and in a constant of their kernels.
_NUMBERS = itertools.count(1)
_TICKS: Final = os.sysconf("SC_CLK_TCK")

Action = Callable[[], None]


class Work:
    """What is created and what executes, on one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        rng = np.random.default_rng(0)
        self._known = [self._others(number).create() for number in range(KERNELS)]
        self._memories: list[dict[int, Memory]] = []
        for primitive in self._known:
            memories = {arg: Memory(md, engine) for arg, md in primitive.pd.memories().items()}
            for arg, memory in memories.items():
                if arg != Arg.SCRATCHPAD:
                    values = np.frombuffer(memory.map(), np.float32)
                    values[:] = rng.random(values.size, np.float32)
            self._memories.append(memories)
        #: How often each of the others executes.
        self.times = 1

    def create(self, count: int = KERNELS) -> None:
        """Create primitives one after the other."""
        for _ in range(count):
            source = self._new().create().source
            if source != "created":
                raise SystemExit(f"expected a new primitive, got one from {source}")

    def execute(self, stream: Stream, only: Sequence[int] = range(KERNELS)) -> None:
        """Execute the others, by number."""
        for _ in range(self.times):
            for number in only:
                self._known[number].execute(stream, self._memories[number])

    def _new(self) -> PrimitiveDescIface:
        number = next(_NUMBERS)
        md = MemoryDesc((number, 64), "f32")
        attr = PrimitiveAttr((PostOp("eltwise", "relu", number / 1024),))
        if number % 2:
            return Binary.PrimitiveDesc(self._engine, md, md, md, "mul", attr=attr)
        return Eltwise.PrimitiveDesc(self._engine, md, md, "abs", attr=attr)

    def _others(self, number: int) -> PrimitiveDescIface:
        """Describe a product, a convolution or a softmax that takes some milliseconds."""
        if number % 5 == 4:
            md = MemoryDesc((2048 + 16 * number, 1024), "f32")
            return Softmax.PrimitiveDesc(self._engine, md, md, 1)
        if number % 5 == 3:
            src = MemoryDesc((2, 64, 56, 56 + number), "f32", "any")
            return Convolution.PrimitiveDesc(
                self._engine, src, MemoryDesc((64, 64, 3, 3), "f32", "any"), None, src, (1, 1), (0, 0), (1, 1), (1, 1)
            )
        left, weights = MemoryDesc((512 + 16 * number, 1024), "f32"), MemoryDesc((1024, 512), "f32", "any")
        return Matmul.PrimitiveDesc(self._engine, left, weights, None, MemoryDesc((left.dims[0], 512), "f32"))


class Cores:
    """Cores that were busy, by name of a contestant, medians over its turns."""

    def __init__(self) -> None:
        self._busy: dict[str, list[float]] = defaultdict(list)

    def timed(self, name: str, action: Action) -> Callable[[], float]:
        """Return what runs an action and returns the seconds that it took."""

        def run() -> float:
            before = _busy_s()
            wall = seconds(action)
            self._busy[name].append((_busy_s() - before) / wall)
            return wall

        return run

    def __getitem__(self, name: str) -> float:
        return statistics.median(self._busy[name])


def _busy_s() -> float:
    """Return the seconds of cores that this process and its children have used so far."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread or a compiler that has just ended
            for child in (task / "children").read_text(encoding="ascii").split():
                fields = Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def stream_on(engine: Engine, pool: ThreadpoolInterface) -> Stream:
    """Return a stream that computes on a pool."""
    attr = StreamAttr("cpu")
    attr.set_threadpool(pool)
    return Stream(engine, attr)


def in_tasks(pool: ThreadpoolInterface, *actions: Action) -> None:
    """Run actions as the tasks of one region."""
    pool.parallel_for(len(actions), lambda i, _: actions[i]())
    pool.wait()


def compare(title: str, after: Action, at_once: Action, goal: str = "") -> str:
    """Measure two orders of the same work; return the line of it."""
    cores = Cores()
    found = alternate({name: cores.timed(name, one) for name, one in (("after", after), ("at once", at_once))}, ROUNDS)
    busy, together = cores["after"], cores["at once"]
    return (
        f"{title}: one after the other {found['after']:.2f} s on {busy:.2f} cores, at once {found['at once']:.2f} s on "
        f"{together:.2f}, ratio {found['at once'] / found['after']:.2f} (two cores allow {busy / CORES:.2f}{goal})"
    )


def measure(engine: Engine) -> list[str]:
    """Return the lines of all forms."""
    work, goal = Work(engine), f"; goal: at most {GOAL}"
    with NativePool(CORES) as pool, NativePool(CORES, asynchronous=True) as later:
        stream, submitting = stream_on(engine, pool), stream_on(engine, later)

        def create() -> None:
            work.create()

        def execute() -> None:
            work.execute(stream)

        def each(action: Callable[[int], None]) -> list[Action]:
            return [lambda number=number: action(number) for number in range(KERNELS)]  # type: ignore[misc]

        creations = each(lambda _: work.create(1))
        executions = each(lambda number: work.execute(stream, (number,)))
        mixed = [one for pair in zip(creations, executions, strict=True) for one in pair]
        in_tasks(pool, *creations)
        in_tasks(pool, execute)
        alone = Cores()
        create_s = alternate({"create": alone.timed("create", lambda: in_tasks(pool, create))}, 3)["create"]
        work.times = max(1, round(create_s / seconds(lambda: in_tasks(pool, execute), 3)))
        execute_s = alternate({"execute": alone.timed("execute", lambda: in_tasks(pool, execute))}, 3)["execute"]

        def submitted_after() -> None:
            work.execute(submitting)
            submitting.wait()
            work.create()

        def submitted_meanwhile() -> None:
            for number in range(KERNELS):
                work.execute(submitting, (number,))
                work.create(1)
            submitting.wait()

        lines = [
            f"in a task of its own, creation alone: {create_s:.2f} s on {alone['create']:.2f} cores; "
            f"{work.times} executions of each alone: {execute_s:.2f} s on {alone['execute']:.2f}",
            compare(
                "in tasks",
                lambda: (in_tasks(pool, create), in_tasks(pool, execute))[1],
                lambda: in_tasks(pool, create, execute),
                goal,
            ),
            compare("asynchronously", submitted_after, submitted_meanwhile),
        ]
        in_tasks(pool, *creations)  # with two compilers, of which one has not been needed for long
        apart = compare(
            "a task each",
            lambda: (in_tasks(pool, *creations), in_tasks(pool, *executions))[1],
            lambda: in_tasks(pool, *mixed),
        )
        return [*lines, apart]


def main() -> None:
    """Print all forms."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["POOLRT_HOME"] = home
        try:
            lines = measure(Engine("cpu"))
        finally:
            with CacheStore.connect() as store:
                store.down()
    record(f"Creation of {KERNELS} kernels while {KERNELS} others execute, {CORES} threads", lines)


if __name__ == "__main__":
    arguments(__doc__)
    main()
