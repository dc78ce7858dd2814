"""Attention on native kernels, with float64 results of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, Attention, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch
from tests.references import results
from tests.workers.cases import normals
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.problems import EPSILON, FAST

Array = NDArray[Any]
Sizes = tuple[int, ...]
#: (B, H, S, T), heads of keys, depth, columns of values: single queries, heads that share keys, tails of every kind.
SHAPES: tuple[tuple[Sizes, int, int, int], ...] = (
    ((2, 6, 1, 130), 2, 40, 70), ((1, 3, 5, 600), 3, 17, 64), ((2, 4, 7, 33), 2, 64, 64), ((1, 2, 100, 130), 1, 64, 80),
    ((1, 1, 33, 515), 1, 5, 1), ((1, 3, 129, 64), 3, 65, 16), ((1, 34, 1, 20), 1, 8, 12), ((2, 2, 16, 1), 2, 1, 3),
)  # fmt: skip


def attention(
    sizes: Sizes, groups: int, depth: int, width: int, mask: Sizes | None = None, dtype: str = "f32", causal: bool = False,
    tag: str = "", scale: float | None = None,
) -> Attention:  # fmt: skip
    batch, heads, rows, keys = sizes
    query, key, value = (
        MemoryDesc(dims, "f32", tag)
        for dims in ((batch, heads, rows, depth), (batch, groups, keys, depth), (batch, groups, keys, width))
    )
    added = None if mask is None else MemoryDesc(mask, dtype)
    dst = MemoryDesc((batch, heads, rows, width), "f32", "any")
    return Attention(query, key, value, added, dst, scale, causal)


def arguments(op: Attention, low: float = -np.inf) -> dict[int, Array]:
    """Return drawn values: a mask excludes a quarter of the keys and all those of the first query."""
    made = {int(a): normals(md.dims, int(a)) for a, md in op.memories().items() if a not in op.outputs()}
    if op.mask is not None:
        drawn = np.random.default_rng(5).random(op.mask.dims) < 0.75
        drawn[..., 0, :] &= op.mask.dims[2] == 1
        made[int(Arg.SHIFT)] = (
            drawn if op.mask.dtype == "bool" else np.where(drawn, made[int(Arg.SHIFT)], np.float32(low))
        )
    return made


def check(native: NativeRunner, isa: str, op: Attention, args: dict[int, Array]) -> Array:
    pd: Any = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:online"
    got, want = native.results(pd, args)[Arg.DST], results(pd.op, PrimitiveAttr(), args)[Arg.DST]
    assert np.array_equal(np.isnan(got), np.isnan(want))
    # Weights add up to 1, so that errors are relative to the values; scores have errors relative to what they add up.
    query, key, value = (np.abs(args[arg]) for arg in (Arg.SRC, Arg.SRC_1, Arg.SRC_2))
    key = np.repeat(key, query.shape[1] // key.shape[1], axis=1)
    scores = query @ key.swapaxes(2, 3) * abs(pd.op.factor)
    limit = FAST["attention"] + EPSILON * scores.max(where=scores < 1e6, initial=0.0)
    assert np.nanmax(np.abs(got - want), initial=0.0) <= limit * value.max()
    return got


def masks(sizes: Sizes, number: int) -> tuple[Sizes | None, str]:
    """Return the shape and type of a mask, others for each number: none, of keys, of queries and keys, of each head."""
    batch, heads, rows, keys = sizes
    shapes: tuple[Sizes | None, ...] = (None, (batch, 1, 1, keys), (1, 1, rows, keys), (batch, heads, rows, keys))
    return shapes[number % 4], ("f32", "bool")[number // 4 % 2]


@pytest.mark.parametrize("case", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(len(SHAPES)) if n != 2)])
def test_queries_of_any_number_and_depth(native: NativeRunner, isa: str, case: int) -> None:
    sizes, groups, depth, width = SHAPES[case]
    for number in (case, case + 1):
        mask, dtype = masks(sizes, number + case // 4 * 5)
        tag, scale = ("", "acbd")[number % 2], (None, -0.5)[number % 2]
        op = attention(sizes, groups, depth, width, mask, dtype, number % 2 == 0, tag, scale)
        check(native, isa, op, arguments(op))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 5, 50])
def test_every_mask_on_one_query_on_few_and_on_many(native: NativeRunner, isa: str, rows: int) -> None:
    for number in range(8):
        sizes = (2, 4, rows, 70)
        mask, dtype = masks(sizes, number)
        op = attention(sizes, 2, 33, 20, mask, dtype, number % 3 == 0)
        check(native, isa, op, arguments(op))
        check(native, isa, op, arguments(op, float(np.finfo(np.float32).min)))


@pytest.mark.parametrize("rows", [17, *(pytest.param(n, marks=pytest.mark.slow) for n in (22, 38))])
def test_a_few_queries_behind_whole_vectors_are_computed_one_by_one(native: NativeRunner, isa: str, rows: int) -> None:
    for number in range(0, 8, 1 if rows > 17 else 3):
        sizes = (2, 4, rows, 35)
        mask, dtype = masks(sizes, number)
        op = attention(sizes, 2, 33, 20, mask, dtype, number % 2 == 0, ("", "acbd")[number % 2])
        program = primitive_desc(op, PrimitiveAttr(), target_of(isa)).program()
        tiles, single = (launch.work for launch in program.launches if isinstance(launch, Launch))
        assert tiles <= 8 * (rows // 16)
        assert single == 8 * (rows % 16)
        check(native, isa, op, arguments(op))


@pytest.mark.parametrize("rows", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_query_without_keys_is_zero_and_what_is_not_finite_stays_with_its_query(
    native: NativeRunner, rows: int
) -> None:
    """More queries than keys: the first ones see none."""
    op = attention((1, 2, rows, 2), 2, 7, 5, causal=True)
    got = check(native, host_isa(), op, arguments(op))
    assert not got[:, :, : rows - 2].any()
    assert got[:, :, rows - 2 :].all()
    op = attention((1, 1, rows, 9), 1, 7, 5, (1, 1, 1, 9))
    args = arguments(op)
    args[Arg.SRC][0, 0, 1, 0] = np.nan
    args[Arg.SRC][0, 0, 2, :] = 1e30
    assert np.isnan(check(native, host_isa(), op, args)[0, 0, 1]).all()
    args[Arg.SHIFT][...] = -np.inf
    assert np.count_nonzero(check(native, host_isa(), op, args)) == 5
    args[Arg.SHIFT][..., 3] = np.inf
    assert np.isnan(check(native, host_isa(), op, args)).all()


@pytest.mark.slow
def test_scores_far_apart_neither_overflow_nor_vanish(native: NativeRunner) -> None:
    for rows in (1, 40):
        op = attention((1, 1, rows, 1200), 1, 16, 16, scale=30.0)
        check(native, host_isa(), op, arguments(op))


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "depth", "width"), [(50, 200, 130), (17, 300, 3), (20, 7, 2048), (1, 2048, 1030)])
def test_depths_beyond_those_of_usual_heads(native: NativeRunner, isa: str, rows: int, depth: int, width: int) -> None:
    op = attention((1, 2, rows, 35), 2, depth, width, causal=True)
    check(native, isa, op, arguments(op))


@pytest.mark.slow
def test_rows_may_be_any_distance_apart(native: NativeRunner) -> None:
    """Views of one tensor (B, S, 3, H, D), as one product makes them."""
    for rows in (1, 40):
        strides = (rows * 3 * 4 * 24, 24, 3 * 4 * 24, 1)
        views = [MemoryDesc((2, 4, rows, 24), "f32", strides=strides) for _ in range(3)]
        dst = MemoryDesc((2, 4, rows, 24), "f32", strides=(rows * 100, 25, 100, 1))
        op = Attention(views[0], views[1], views[2], None, dst, None, True)
        check(native, host_isa(), op, arguments(op))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Attention, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    sizes = (1, 2, 3, 4)
    refused(attention(sizes, 2, 5, 6, tag="abdc"), "rows of adjacent")
    refused(attention(sizes, 2, 5, 6, tag="aBcd16b"), "rows of adjacent")
    refused(attention(sizes, 2, 5, 6, (1, 1, 3, 1)), "one for each key")
    refused(attention(sizes, 2, 5, 6, (1, 1, 3, 4), "s32"), "mask of data type s32")
    refused(attention(sizes, 2, 5000, 6), "depth 5000")
    refused(attention(sizes, 2, 5, 6), "post-ops", PrimitiveAttr((PostOp("eltwise", "relu"),)))
