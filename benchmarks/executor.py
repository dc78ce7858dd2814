"""What a step costs: in a worker's plan executor, in the in-process executor, and as bare primitives on one stream.

A chain of 200 softmaxes of 16 values is all overhead; one tanh of 128 x 3072 values is all computation.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, Final

sys.path.insert(0, os.path.dirname(__file__))

import numpy as np
from measure import alternate, arguments, record, seconds

from poolrt import Arg, Eltwise, Engine, Executor, Graph, Memory, MemoryDesc, Softmax, Stream
from poolrt.cachestore import CacheStore
from poolrt.graph.lower import lower
from poolrt.graph.passes import optimize
from poolrt.workers.execution.primitive import Primitive
from poolrt.workers.plans.executor import PlanExecutor
from poolrt.workers.primitives.provider import PrimitiveProvider

ROUNDS: Final = 200
REPEAT: Final = 20
STEPS: Final = 200
CHAINED: Final = (1, 16)
LARGE: Final = (128, 3072)


def chain() -> Graph:
    """Return a graph of 200 softmaxes."""
    g = Graph("chain")
    x = g.input("x", CHAINED)
    for _ in range(STEPS):
        x = g.softmax(x)
    g.output("y", x)
    return g


def large() -> Graph:
    """Return a graph of one tanh."""
    g = Graph("large")
    g.output("y", g.eltwise(g.input("x", LARGE), "tanh"))
    return g


def plan_executor(graph: Graph, stream: Stream, cache: PrimitiveProvider) -> Callable[[], object]:
    """Return a run as a worker does it: inputs and outputs stay where they are."""
    lowered = lower(optimize(graph.to_ir()), {"cpu": stream.target})
    primitives = {n: Primitive(pd, stream.engine, cache).resource for n, pd in enumerate(lowered.primitives)}
    executor = PlanExecutor(lowered.plan, primitives, [stream], [])
    ports = [
        [Memory(MemoryDesc(p.dims, p.dtype)) for p in some] for some in (lowered.plan.inputs, lowered.plan.outputs)
    ]
    return partial(executor.run, *([memory.address for memory in some] for some in ports))


def in_process(graph: Graph, dims: tuple[int, ...], cache: PrimitiveProvider) -> Callable[[], object]:
    """Return a run of the in-process executor on an array."""
    return partial(Executor(graph, cache=cache).run, x=np.zeros(dims, np.float32))


def bare(op: Any, dims: tuple[int, ...], steps: int, stream: Stream, cache: PrimitiveProvider) -> Callable[[], object]:
    """Return executions of one primitive on memories that stay where they are."""
    desc = MemoryDesc(dims, "f32")
    primitive = op(stream.engine, desc, desc).create(cache)
    args = {Arg.SRC: Memory(desc, stream.engine), Arg.DST: Memory(desc, stream.engine)}

    def run() -> None:
        for _ in range(steps):
            primitive.execute(stream, args)
        stream.wait()

    return run


def main() -> None:
    """Print the microseconds a step, medians, and the ratio to bare primitives."""
    arguments(__doc__)
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache, engine = PrimitiveProvider(64, store), Engine("cpu")
        stream = Stream(engine)
        softmax = partial(Softmax.PrimitiveDesc, axis=1)
        tanh = partial(Eltwise.PrimitiveDesc, algorithm="tanh")
        for title, steps, graph, dims, op in (
            (f"chain of {STEPS} softmaxes of {CHAINED[-1]} values", STEPS, chain(), CHAINED, softmax),
            (f"tanh of {LARGE[0]} x {LARGE[1]} values", 1, large(), LARGE, tanh),
        ):
            contestants = {
                "plan executor, as in a worker": plan_executor(graph, stream, cache),
                "executor": in_process(graph, dims, cache),
                "bare primitives": bare(op, dims, steps, stream, cache),
            }
            for run in contestants.values():
                run()
            timed = {name: partial(seconds, run, REPEAT) for name, run in contestants.items()}
            found = alternate(timed, ROUNDS)
            last = found["bare primitives"]
            lines = [f"{name}: {1e6 * s / steps:.2f} us a step, ratio {s / last:.3f}" for name, s in found.items()]
            record(f"Executor, {title}", lines)


if __name__ == "__main__":
    main()
