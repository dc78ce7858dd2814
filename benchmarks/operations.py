"""Single operations beside ONNX Runtime and OpenVINO, on one thread and on two: a graph of one node through `Executor`.

Quantised operations and a few others are ONNX models of one node or two, whose graphs poolrt imports.

Each operation has real shapes of networks; weights are constants, as they are there. A ratio is the time of the faster rival
divided by poolrt's, all with what their interfaces add: checks of the inputs, memory of the outputs, which OpenVINO keeps
for itself. Times on one thread are the processor's. All results are compared with those of the tests' references in float64.

A share of the peak is the rate of poolrt's operations, or of the bytes of inputs, constants and outputs if the operation sums
no products, as a share of the rates that `poolrt run --profile` measures; it is above 1 if they are in a cache. Sixty pairs of
an operation and a shape, marked with a star, count in a mean of their own.

The setting max_cpu_isa (POOLRT_MAX_CPU_ISA=x86-64-v3, for one) bounds the instructions of poolrt, and of OpenVINO as far as
oneDNN's ONEDNN_MAX_CPU_ISA does. Limitation: ONNX Runtime has no such bound, and uses all instructions that it finds.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from measure import arguments, record, sized
from problems.imported import (
    Imported,
    grids,
    integer_products,
    moved,
    quantised_by_channel,
    quantised_means,
    quantised_while_running,
    splits,
)
from problems.movement import concats, gathers, pads, scatters, transposes
from problems.normalizations import batch_normalizations, normalizations, root_mean_squares, softmaxes
from problems.pointwise import binaries, eltwises, selects
from problems.problem import Problem
from problems.products import convolutions, matmuls, recurrences
from problems.quantised import quantised
from problems.reductions import arg_reductions, reductions, top_ks
from problems.sixty import SIXTY
from problems.types import types
from problems.volumes import volumes
from problems.windows import cubic_resamplings, deconvolutions, poolings, resamplings

from poolrt import Engine, NativePool, Stream, StreamAttr
from poolrt.cachestore import CacheStore
from poolrt.inprocess.profile import Peak, measure_peak
from poolrt.settings import Settings
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.cost_model import products
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.graph.interpreter import run_wire

_LEVEL: Final = Settings.load().max_cpu_isa
#: oneDNN's name of an ISA level; OpenVINO reads it when it is loaded.
_ONEDNN_LEVELS: Final = {"x86-64": "SSE41", "x86-64-v2": "SSE41", "x86-64-v3": "AVX2"}
if _LEVEL in _ONEDNN_LEVELS:
    os.environ["ONEDNN_MAX_CPU_ISA"] = _ONEDNN_LEVELS[_LEVEL]

from rivals import (  # noqa: E402
    POOLRT,
    check,
    describe_times,
    differs,
    measure,
    poolrt_session,
    ratio_of,
    rival_sessions,
    summarize,
)  # fmt: skip

#: Seconds that one measurement of one contestant takes at least.
_LEAST_S: Final = 0.02
_ROUNDS: Final = 9
#: The largest difference of results, as a share of the largest number, for each data type that is computed in.
_NEAR: Final = {"float16": 1e-2, "float64": 1e-6}

FAMILIES: Final[dict[str, Callable[[], Iterator[Problem | Imported]]]] = {
    "matmul": matmuls,
    "convolution": convolutions,
    "recurrence": recurrences,
    "eltwise": eltwises,
    "softmax": softmaxes,
    "binary": binaries,
    "reduction": reductions,
    "transpose": transposes,
    "concat": concats,
    "pooling": poolings,
    "normalization": normalizations,
    "batch_normalization": batch_normalizations,
    "resampling": resamplings,
    "deconvolution": deconvolutions,
    "rms_normalization": root_mean_squares,
    "cubic": cubic_resamplings,
    "types": types,
    "quantised": quantised,
    "gather": gathers,
    "select": selects,
    "arg_reduction": arg_reductions,
    "order": top_ks,
    "pad": pads,
    "scatter": scatters,
    "dynamic": quantised_while_running,
    "by_channel": quantised_by_channel,
    "integer_product": integer_products,
    "quantised_mean": quantised_means,
    "moved": moved,
    "volumes": volumes,
    "split": splits,
    "grid": grids,
}


class LimitedEngine(Engine):
    """The CPU with the instructions of one ISA level only."""

    __slots__ = ()

    def __init__(self, level: str) -> None:
        super().__init__("cpu")
        object.__setattr__(self, "target", cpu_target(level))


def compare(
    problem: Problem | Imported, stream: Stream, threads: int, cache: PrimitiveProvider, peak: Peak
) -> tuple[str, dict[str, float]]:
    """Return poolrt's implementations and share of the peak, and the seconds of each contestant.

    Raises AssertionError if results differ from those of the NumPy references in float64. OpenVINO sits out instead, and for
    types that it does not compute in.
    """
    given, near = problem.arrays(), problem.near or _NEAR.get(problem.dtype, 1e-4)
    rivals = rival_sessions(problem.model(), threads, problem.dtype not in _NEAR, lends=True)
    sessions = {POOLRT: poolrt_session(problem.graph(), stream, cache), **rivals}
    wire, constants = problem.graph().to_wire()
    exact = tuple(run_wire(wire, constants, given).values())
    for name in (POOLRT, "ONNX Runtime"):
        check(f"{problem}: {name}", sessions[name](given), exact, near)
    if "OpenVINO" in sessions and (why := differs(sessions["OpenVINO"](given), exact, near)):
        print(f"OpenVINO sits out, its result is another: {why}", flush=True)
        del sessions["OpenVINO"]
    contestants = {name: partial(session, given) for name, session in sessions.items()}
    found = measure(contestants, threads, _ROUNDS, _LEAST_S)
    names, operations = _work(problem, stream)
    share = (2 * operations / peak.operations or problem.nbytes() / peak.nbytes) / found[POOLRT]
    return f"{', '.join(names)}; {share:.0%} of the peak", found


def _work(problem: Problem | Imported, stream: Stream) -> tuple[list[str], int]:
    """Return the implementations of a problem's primitives, and how many products they sum."""
    from poolrt.graph.lower import lower
    from poolrt.graph.passes import optimize

    lowered = lower(optimize(problem.graph().to_ir()), {"cpu": stream.target})
    return [pd.impl_name() for pd in lowered.primitives], sum(products(pd.op) for pd in lowered.primitives)


def main() -> None:
    """Print a table of each family for each number of threads, and then the means."""
    chosen = arguments(__doc__, tuple(FAMILIES))
    known = {str(problem) for family in FAMILIES.values() for problem in family()} if chosen == [*FAMILIES] else SIXTY
    assert known >= SIXTY, f"these of the sixty do not exist: {sorted(SIXTY - known)}"
    with tempfile.TemporaryDirectory() as home, CacheStore.connect(home=home, url=f"unix://{home}/none.sock") as store:
        cache, engine = PrimitiveProvider(256, store), LimitedEngine(_LEVEL) if _LEVEL else Engine("cpu")
        for threads in (1, 2):
            with NativePool(threads) as pool:
                attr = StreamAttr("cpu")
                attr.set_threadpool(pool)
                _compare_families(chosen, Stream(engine, attr), threads, cache)


def _compare_families(chosen: list[str], stream: Stream, threads: int, cache: PrimitiveProvider) -> None:
    """Print the tables for one number of threads."""
    peak = measure_peak(stream, cache)
    clock = "1 thread, processor time" if threads == 1 else f"{threads} threads, wall time"
    where = f"{stream.target.instructions}, {clock}"
    ratios: dict[str, float] = {}
    for name in chosen:
        lines, own = [], {}
        for problem in list(FAMILIES[name]())[: sized(None, 2)]:
            found, times = compare(problem, stream, threads, cache, peak)
            own[str(problem)] = ratio_of(times)
            lines.append(f"{'* ' * (str(problem) in SIXTY)}{problem}: {describe_times(times)} ({found})")
        record(f"Operations: {name}, {where}", [*lines, summarize(own)])
        ratios |= own
    counted = {name: ratio for name, ratio in ratios.items() if name in SIXTY}
    whole = [f"peak {peak.operations / 1e9:.1f} GFLOP/s, {peak.nbytes / 1e9:.1f} GB/s", f"all: {summarize(ratios)}"]
    if counted:
        whole.append(f"of the sixty: {summarize(counted)}")
    record(f"Operations, {where}", whole)


if __name__ == "__main__":
    main()
