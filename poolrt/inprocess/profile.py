"""The time of each step of a graph, its rate, and its share of the rates that this machine reaches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.explained_plan import explain_plan
from poolrt.graph.builder import Graph
from poolrt.plan_listing import PlanListing
from poolrt.workers.desc import Arg
from poolrt.workers.desc.typed import to_integer
from poolrt.workers.engines.engine import Engine
from poolrt.workers.implementations.cost_model import products
from poolrt.workers.plans.execution_plan import Step
from poolrt.workers.streams.attributes import StreamAttr
from poolrt.workers.streams.stream import Stream

from .executor import Executor

if TYPE_CHECKING:
    from poolrt.graph.source_node import SourceNode
    from poolrt.plan_listing import PlannedStep
    from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
    from poolrt.workers.primitives.provider import PrimitiveProvider
    from poolrt.workers.threadpools.interface import ThreadpoolInterface

#: Sizes of the matrices whose product measures the rate of computing: 2 * 512**3 operations take some 2 ms on one core.
_PRODUCT: Final = 512
#: Bytes that relu reads, and writes, to measure the rate of memory: more than most caches hold.
_MOVED: Final = 1 << 26
#: Runs of the product and of relu, of which the best counts.
_RUNS: Final = (30, 10)


@dataclass(frozen=True, slots=True)
class Peak:
    """The best rates measured on this machine, with the threads of the profile.

    ``operations``: float32 operations per second in a product of matrices of 512. ``nbytes``: bytes that relu reads and
    writes per second, of 64 MiB.
    """

    operations: float
    nbytes: float


@dataclass(frozen=True, slots=True)
class StepProfile:
    """A step with the nodes of the model that it computes, its median time, and its share of the time of all steps.

    ``operations`` counts multiplications and additions of a step that sums products, 0 for others; ``nbytes`` what it reads
    and writes. ``of_peak`` is its rate of operations, or of bytes if it has none, as a share of the peak: above 1 if its
    tensors are in a cache; None for steps on other engines than the CPU and for products of other types than float32.
    """

    step: PlannedStep
    nodes: tuple[SourceNode, ...]
    seconds: float
    share: float
    operations: int
    nbytes: int
    of_peak: float | None

    @property
    def rate(self) -> str:
        """The rate for people: GFLOP/s (GOP/s of integers) of a step that sums products, else GB/s."""
        if not self.seconds:
            return ""
        if self.operations:
            unit = "GFLOP/s" if self.step.results[0].dtype.startswith(("f", "bf")) else "GOP/s"
            return f"{self.operations / self.seconds / 1e9:.1f} {unit}"
        return f"{self.nbytes / self.seconds / 1e9:.1f} GB/s"


@dataclass(frozen=True, slots=True)
class Profile:
    """The steps of a graph, the slowest first; ``seconds`` is the sum of their times."""

    threads: int
    runs: int
    seconds: float
    peak: Peak
    steps: tuple[StepProfile, ...]


def profile_graph(
    graph: Graph,
    inputs: Mapping[str, Any],
    *,
    runs: int = 10,
    threadpool: ThreadpoolInterface | None = None,
    cache: PrimitiveProvider | None = None,
) -> Profile:
    """Run a graph ``runs`` times in this process, after one run that is not counted, and return the time of each step.

    Inputs and errors are those of `Executor.run`, whose ``cache`` this takes too. CPU steps compute on ``threadpool``, by
    default on the calling thread. Raises ValueError for less than one run, TypeError for no graph.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"graph: expect a Graph, got {type(graph).__name__}")
    runs = to_integer("runs", runs)
    if runs < 1:
        raise ValueError(f"runs: expect at least 1, got {runs}")
    attr = StreamAttr("cpu")
    attr.set_threadpool(threadpool)
    stream = Stream(Engine("cpu"), attr)
    executor = Executor(graph, stream=stream if graph.engine == "cpu" else None, cache=cache)
    lowered, times = executor.time_steps(runs, **inputs)
    peak = measure_peak(stream, cache)
    listing = PlanListing.of_lowered(lowered)
    nodes = explain_plan(listing, graph).nodes
    medians = [statistics.median(each) / 1e9 if each else 0.0 for each in times]
    total = math.fsum(medians)
    steps = []
    for step, planned, sources, seconds in zip(lowered.plan.steps, listing.steps, nodes, medians, strict=True):
        operations = nbytes = 0
        of_peak = None
        if isinstance(step, Step):
            primitive = lowered.primitives[step.primitive]
            operations, nbytes = 2 * products(primitive.op), _moved(primitive)
            if planned.engine == "cpu" and seconds and not (operations and planned.operands[0].dtype != "f32"):
                of_peak = (operations / peak.operations or nbytes / peak.nbytes) / seconds
        steps.append(
            StepProfile(planned, sources, seconds, seconds / total if total else 0.0, operations, nbytes, of_peak)
        )
    steps.sort(key=lambda each: -each.seconds)
    return Profile(stream.pool.get_num_threads(), runs, total, peak, tuple(steps))


def measure_peak(stream: Stream, cache: PrimitiveProvider | None) -> Peak:
    """Return the best rates of a few runs on the stream of a CPU, with the threads of its pool."""
    product, relu = Graph("peak of computing"), Graph("peak of memory")
    matrix = np.ones((_PRODUCT, _PRODUCT), np.float32)
    product.output("y", product.matmul(product.input("x", matrix.shape), matrix))
    vector = np.ones(_MOVED // 4, np.float32)
    relu.output("y", relu.eltwise(relu.input("x", vector.shape), "relu"))
    best = []
    for graph, x, runs in ((product, matrix, _RUNS[0]), (relu, vector, _RUNS[1])):
        _, times = Executor(graph, stream=stream, cache=cache).time_steps(runs, x=x)
        # A plan may reorder its source before the product
        best.append(min(map(sum, zip(*times, strict=True))) / 1e9)
    return Peak(2 * _PRODUCT**3 / best[0], 2 * _MOVED / best[1])


def _moved(primitive: PrimitiveDesc) -> int:
    """Return the bytes that a primitive reads and writes; of a source that it gathers from, as many as it writes."""
    memories = primitive.memories()
    moved = sum(desc.nbytes for desc in memories.values())
    if primitive.op.kind == "gather":
        moved += min(0, memories[Arg.DST].nbytes - memories[Arg.SRC].nbytes)
    return moved
