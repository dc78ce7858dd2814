"""Reduction on native kernels: along rows and columns, whole and divided into parts for threads."""

from __future__ import annotations

import math
import random
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MemoryDesc, PostOp, PrimitiveAttr, Reduction
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch
from tests.references import assert_close, numpy_type
from tests.references.reduction import reduction
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.pooled_runner import PooledRunner
from tests.workers.threadpools.every_pool import EveryPool
from tests.workers.threadpools.kinds import region_loop

Array = NDArray[Any]
SEED = random.SystemRandom().randrange(1 << 32)
#: Errors of sums, relative to the sum of the absolute values, for the larger numbers of elements among these problems.
THRESHOLD = 3e-6
#: A number of threads by which the larger of these problems are divided.
THREADS = 5


class Problem(NamedTuple):
    """Dimensions of the source, of the destination, algorithm and p."""

    src: tuple[int, ...]
    dst: tuple[int, ...]
    algorithm: str
    p: float = 0.0


#: Every shape of work; few algorithms, since each is another kernel for each level.
PROBLEMS = (
    Problem((20_011,), (1,), "sum"),
    Problem((3, 17_001), (3, 1), "norm_lp_max", 2.0),
    Problem((2, 5, 1009, 7), (2, 1, 1009, 1), "sum"),
    Problem((2, 3, 9001), (2, 1, 1), "sum"),
    Problem((12_007, 3), (1, 3), "sum"),
    Problem((9001, 71), (1, 71), "sum"),
    Problem((64, 3, 131, 33), (1, 3, 1, 33), "sum"),
    Problem((3, 2, 70, 1103), (1, 2, 1, 1103), "sum"),
    Problem((3511, 1025), (1, 1025), "sum"),  # more than caches hold
    Problem((33, 65, 5), (1, 65, 1), "norm_lp_sum", 2.0),
    Problem((3, 40, 7, 33), (3, 1, 7, 1), "sum"),
    Problem((700, 2, 3), (1, 2, 1), "sum"),
    Problem((131, 7, 2), (131, 1, 2), "sum"),
    Problem((9, 64, 16), (9, 1, 16), "sum"),
    Problem((5, 3, 15), (5, 1, 15), "sum"),
    Problem((131, 3), (131, 1), "sum"),
    Problem((5, 37, 4), (5, 37, 1), "norm_lp_sum", 2.0),
    Problem((3, 4, 5), (3, 4, 5), "sum"),
    Problem((5, 6, 7, 8, 9), (1, 6, 1, 8, 1), "sum"),
    Problem((2, 3, 5, 7, 11, 13, 4), (2, 1, 5, 1, 11, 1, 4), "norm_lp_sum", 2.0),
    Problem((3, 700, 3), (3, 1, 3), "sum"),
    Problem((20_000, 5), (1, 5), "norm_lp_sum", 1.0),
    Problem((0, 4), (1, 4), "sum"),
    Problem((0, 100), (1, 100), "sum"),
    Problem((0, 3, 2, 5, 2), (1, 3, 1, 5, 1), "sum"),
)
#: The other algorithms: what is made of the sum of parts depends on them.
FURTHER = (
    Problem((20_011,), (1,), "mean"),
    Problem((12_007, 3), (1, 3), "norm_lp_sum", 2.0),
    Problem((12_007, 3), (1, 3), "norm_lp_power_p_max", 1.0),
    Problem((7, 3, 5, 4, 3), (1, 3, 1, 4, 1), "mean"),
)


def operation(problem: Problem) -> Reduction:
    return Reduction(MemoryDesc(problem.src, "f32"), MemoryDesc(problem.dst, "f32"), *problem[2:], eps=0.5)


def described(problem: Problem, threads: int, isa: str | None = None) -> PrimitiveDesc:
    return primitive_desc(
        operation(problem), PrimitiveAttr(), (target_of(isa) if isa else cpu_target()).on_threads(threads)
    )


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.one_in(3)
def test_native_result_is_right_on_every_level(problem: Problem, isa: str, native: NativeRunner) -> None:
    check(problem, isa, native)


@pytest.mark.parametrize(
    "problem", [FURTHER[0], *(pytest.param(p, marks=pytest.mark.slow) for p in FURTHER[1:])], ids=str
)
def test_native_result_of_every_algorithm_is_right(problem: Problem, native: NativeRunner) -> None:
    check(problem, None, native)


def check(problem: Problem, isa: str | None, native: NativeRunner) -> None:
    """Raise AssertionError unless the result is right, whole and in parts."""
    chance, op = np.random.default_rng(SEED), operation(problem)
    for threads in (1, THREADS):
        pd = described(problem, threads, isa)
        assert pd.impl_name() == "native:reduction"
        src = chance.standard_normal(problem.src).astype(np.float32)
        wide = src.astype(np.float64)
        want = reduction(op, wide)
        # What is added up may cancel
        size = reduction(Reduction(op.src, op.dst, "norm_lp_sum", 1.0), wide)
        size = size / (wide.size / want.size) if problem.algorithm == "mean" else size
        got = native.results(pd, {Arg.SRC: src})[Arg.DST]
        assert_close(got, want, "f32", THRESHOLD, f"seed {SEED}: {problem} on {threads} threads", size)


@pytest.mark.parametrize(
    "algorithm", ["sum", "max", *(pytest.param(a, marks=pytest.mark.slow) for a in ("min", "mul"))]
)
@pytest.mark.parametrize("dims", [(1, 20_000), (20_000, 3)])
@pytest.mark.parametrize("threads", [1, THREADS])
def test_nan_and_infinities_reach_the_result_from_anywhere(
    dims: tuple[int, int], algorithm: str, threads: int, native: NativeRunner
) -> None:
    axis = int(np.argmax(dims))
    dst = (1, 1) if axis else (1, dims[1])
    problem = Problem(dims, dst, algorithm)
    pd, op = described(problem, threads), operation(problem)
    for special in (math.nan, math.inf, -math.inf):
        for place in (0, 1, 15, 16, 63, 4000, dims[axis] - 1):
            src = np.ones(dims, np.float32)
            src[(0, place) if axis else (place, dims[1] - 1)] = special
            with np.errstate(invalid="ignore"):
                want = reduction(op, src.astype(np.float64))
            got = native.run(pd, {Arg.SRC: src})[Arg.DST].reshape(dst)
            np.testing.assert_array_equal(got, want, err_msg=f"{special} at {place}")


@pytest.mark.parametrize("algorithm", ["sum", "max"])
def test_nan_and_infinities_reach_the_result_of_short_runs(algorithm: str, native: NativeRunner) -> None:
    problem = Problem((41, 13, 7), (1, 13, 1), algorithm)
    pd, op = described(problem, 1), operation(problem)
    for special in (math.nan, math.inf, -math.inf):
        for place in ((0, 0, 0), (40, 12, 6), (17, 5, 3), (40, 0, 0)):
            src = np.ones(problem.src, np.float32)
            src[place] = special
            got = native.run(pd, {Arg.SRC: src})[Arg.DST].reshape(problem.dst)
            np.testing.assert_array_equal(got, reduction(op, src.astype(np.float64)), err_msg=f"{special} at {place}")


@pytest.mark.parametrize(("dtype", "algorithm"), [("f64", "sum"), ("f32", "max"), ("f16", "min"), ("bf16", "mul")])
@pytest.mark.one_in(4)
def test_rows_of_few_elements_are_right_with_nan_and_infinities(
    dtype: str, algorithm: str, isa: str, native: NativeRunner
) -> None:
    chance = np.random.default_rng(SEED)
    for rows, columns in ((16, 2), (37, 3), (67, 4), (15, 3), (40, 1), (33, 5)):
        op = Reduction(MemoryDesc((rows, columns), dtype), MemoryDesc((rows, 1), dtype), algorithm)
        for threads in (1, THREADS):
            pd = primitive_desc(op, PrimitiveAttr(), target_of(isa).on_threads(threads))
            assert pd.impl_name() == "native:reduction"
            # Their sums and products are exact.
            src = chance.integers(-4, 5, (rows, columns)).astype(numpy_type(dtype))
            for special in (math.nan, math.inf, -math.inf):
                src[chance.integers(rows), chance.integers(columns)] = special
            with np.errstate(invalid="ignore"):
                want = reduction(op, src.astype(np.float64))
            got = native.results(pd, {Arg.SRC: src})[Arg.DST]
            np.testing.assert_array_equal(got.astype(np.float64), want, f"seed {SEED}: {rows} x {columns}")


@pytest.mark.parametrize("dims", [(1, 3), (2, 4003), (20_011, 1), (1501, 71)])
def test_products_are_right(dims: tuple[int, int], native: NativeRunner) -> None:
    chance = np.random.default_rng(SEED)
    # So that the logarithm of the product of all, of standard deviation 10, is far from 88, where float32 ends.
    spread = min(0.1, 10.0 / math.sqrt(math.prod(dims)))
    src = (np.exp(chance.normal(0.0, spread, dims)) * chance.choice([-1.0, 1.0], dims)).astype(np.float32)
    for dst in ((1, dims[1]), (dims[0], 1), (1, 1)):
        problem = Problem(dims, dst, "mul")
        want = reduction(operation(problem), src.astype(np.float64))
        for threads in (1, THREADS):
            got = native.results(described(problem, threads), {Arg.SRC: src})[Arg.DST]
            np.testing.assert_allclose(got, want, rtol=6e-8 * src.size, err_msg=f"seed {SEED}: {problem}, {threads}")


@pytest.mark.parametrize(
    "problems",
    [PROBLEMS[:1], PROBLEMS[4:5], pytest.param(PROBLEMS, marks=pytest.mark.slow)],
    ids=["row", "columns", "all"],
)
def test_parts_are_put_together_alike_on_threadpools_of_every_kind(
    problems: tuple[Problem, ...], native: NativeRunner
) -> None:
    chance = np.random.default_rng(SEED)
    divided = [problem for problem in problems if described(problem, THREADS).target.threads]
    assert divided
    with closing(EveryPool(region_loop(), SEED)) as pools:
        for problem in divided:
            src = chance.standard_normal(problem.src).astype(np.float32)
            PooledRunner(native, pools).results(described(problem, THREADS), {Arg.SRC: src})


def test_few_long_results_are_divided_and_others_are_not() -> None:
    parts = {
        # Of each result as many parts as threads
        Problem((1 << 20,), (1,), "sum"): 7,
        Problem((3, 1 << 20), (3, 1), "sum"): 7,
        # or fewer, where a part would be too short to be worth a thread
        Problem((20_000,), (1,), "sum"): 2,
        Problem((4000,), (1,), "sum"): 0,
        # None where each thread has results of its own, in equal shares or in many
        Problem((7, 1 << 18), (7, 1), "sum"): 0,
        Problem((100, 1 << 14), (100, 1), "sum"): 0,
        Problem((1 << 14, 64 * 100), (1, 64 * 100), "sum"): 0,
    }
    for problem, expected in parts.items():
        assert described(problem, 7).target.threads == expected, problem
        assert described(problem, 1).target.threads == described(problem, 0).target.threads == 0


def test_partial_results_have_scratch_memory_and_the_last_launch_is_one_task() -> None:
    program = described(Problem((1 << 20, 3), (1, 3), "norm_lp_sum", 2.0), 7).program()
    divided, last = program.launches
    assert (divided.work, last.work) == (7, 1)  # type: ignore[union-attr]
    assert program.scratchpad == 7 * 3 * 4


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
def test_runs_that_are_reduced_one_after_the_other_are_right_in_every_type(dtype: str, native: NativeRunner) -> None:
    """NaN and infinities, too."""
    src, dst = (5, 3, 7, 2, 6), (1, 3, 1, 2, 1)
    values = np.random.default_rng(SEED).integers(-20, 20, src)
    for algorithm in ("mean", "max"):
        op = Reduction(MemoryDesc(src, dtype), MemoryDesc(dst, dtype), algorithm)
        pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
        given = values.astype(numpy_type(dtype))
        given[1, 0, 2, 1, 3], given[4, 2, 6, 0, 5] = math.nan, math.inf
        want = reduction(op, given.astype(np.float64))
        got = native.results(pd, {Arg.SRC: given})[Arg.DST]
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-3 if dtype == "f16" else 1e-6, atol=1e-6)


def test_few_columns_of_many_rows_are_reduced_as_more_columns() -> None:
    for dims, first in (((2000, 3), 60), ((32, 1000, 4), 40), ((64, 64, 16), 16), ((997, 3), 3)):
        launch = described(Problem(dims, (*dims[:-2], 1, dims[-1]), "sum"), 1).program().launches[0]
        assert isinstance(launch, Launch)
        assert launch.args[6] == ("i", first)


def test_short_runs_in_many_places_are_added_up_row_by_row_before_they_are_reduced() -> None:
    """A launch that begins each row anew goes through memory for each: five times as slow."""
    for dims, rows, columns in (((8, 32, 16, 16), 32, 256), ((64, 100, 9), 64, 900), ((33, 5, 200), 33, 1000)):
        kept = (dims[0], 1, dims[2], 1) if len(dims) == 4 else (1, dims[1], 1)
        first, last = described(Problem(dims, kept, "sum"), 1).program().launches
        assert isinstance(first, Launch)
        assert isinstance(last, Launch)
        assert first.args[4:7] == (("i", 1), ("i", rows), ("i", columns))
        assert last.args[4:7] == (("i", 1), ("i", dims[-1]), ("i", 1))


@pytest.mark.parametrize(
    ("op", "attr", "reason"),
    [
        (Reduction(MemoryDesc((4, 5), "f16"), MemoryDesc((4, 1), "f32"), "sum"), PrimitiveAttr(), "data types differ: f16"),
        (
            Reduction(MemoryDesc((4, 5), "f32"), MemoryDesc((4, 1), "f32"), "norm_lp_sum", 3.0), PrimitiveAttr(),
            "norm_lp_sum with p = 3",
        ),
        (
            Reduction(MemoryDesc((4, 5), "f32"), MemoryDesc((4, 1), "f32"), "sum"),
            PrimitiveAttr((PostOp("eltwise", "relu"),)), "post-ops",
        ),
    ],
    ids=["type", "power", "post-ops"],
)  # fmt: skip
def test_what_is_not_made_for_speed_is_left_to_the_reference(op: Reduction, attr: PrimitiveAttr, reason: str) -> None:
    assert primitive_desc(op, attr, cpu_target()).impl_name() == "ref:reduction"
    with pytest.raises(UnsupportedPrimitive, match=reason):
        primitive_desc(op, attr, cpu_target(), references=False)
