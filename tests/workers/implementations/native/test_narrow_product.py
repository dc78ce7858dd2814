"""Products with factors of f16 and bf16: within the bounds of sums in float32 that are rounded once, on every ISA level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, InnerProduct, Matmul, MemoryDesc, PostOp, PrimitiveAttr, post_op_src
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import numpy_type
from tests.workers.levels import LEVELS, target_of
from tests.workers.native_runner import NativeRunner

#: The largest relative error of rounding once, and the largest error of numbers below the normal range.
ROUNDING = {"f32": (2.0**-24, 0.0), "f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 0.0)}
NARROW = st.sampled_from(["f16", "bf16"])
ANY = st.sampled_from(["f32", "f16", "bf16"])


def bounded(left: Any, right: Any, added: Any, residual: Any, steps: str, dtype: str) -> tuple[Any, Any]:
    """Return a product in float64 with relu ("r") and addition ("a") in order, and the bound of each result's error."""
    a, b, c = (np.asarray(value, np.float64) for value in (left, right, added))
    # Products of float32 are rounded too, those of fewer bits are exact.
    total, error = a @ b + c, (a.shape[-1] + 3) * 2.0**-23 * (np.abs(a) @ np.abs(b) + np.abs(c))
    for step in steps:
        if step == "a":
            total = total + residual.astype(np.float64)
            error = error + 2.0**-24 * np.abs(total)
        else:
            total = np.maximum(total, 0.0)
    relative, least = ROUNDING[dtype]
    return total, error * (1 + relative) + relative * np.abs(total) + least


def check(
    native: NativeRunner, isa: str, shape: tuple[int, int, int], outer: tuple[tuple[int, ...], tuple[int, ...]],
    dtypes: tuple[str, str, str, str], layouts: tuple[str, str], steps: str, is_inner: bool = False,
) -> None:  # fmt: skip
    """Compute one product and compare it with float64; ``dtypes`` are those of src, weights, bias ("": none) and dst.

    ``layouts`` of src and weights are "rows", "columns", "apart" (with gaps), or of weights "packed".
    """
    (rows, columns, depth), (src_type, weight_type, bias_type, dst_type) = shape, dtypes
    rng = np.random.default_rng()
    batch = np.broadcast_shapes(*outer)
    left = rng.standard_normal((*outer[0], rows, depth)).astype(numpy_type(src_type))
    right = rng.standard_normal((*outer[1], depth, columns)).astype(numpy_type(weight_type))
    rank = len(batch) + 2
    added = rng.standard_normal((*(1,) * (rank - 1), columns)).astype(numpy_type(bias_type or "f32"))
    residual = rng.standard_normal((*batch, rows, columns)).astype(numpy_type(dst_type))
    dst = MemoryDesc(residual.shape, dst_type)
    attr = PrimitiveAttr(
        tuple(PostOp("binary", "add", src1=dst) if s == "a" else PostOp("eltwise", "relu") for s in steps)
    )
    args: dict[int, Any] = {Arg.SRC: left, Arg.WEIGHTS: right.T if is_inner else right}
    args |= {post_op_src(i): residual for i, s in enumerate(steps) if s == "a"}
    if is_inner:
        biases = MemoryDesc((columns,), bias_type) if bias_type else None
        tag = {"rows": "ba", "packed": "Ab16a"}.get(layouts[1], "ab")
        weights = MemoryDesc((columns, depth), weight_type, tag)
        op: Any = InnerProduct(MemoryDesc((rows, depth), src_type), weights, biases, dst)
    else:
        biases = MemoryDesc(added.shape, bias_type) if bias_type else None
        op = Matmul(_laid(left.shape, src_type, layouts[0]), _laid(right.shape, weight_type, layouts[1]), biases, dst)
    if biases is not None:
        args[Arg.BIAS] = added.reshape(biases.dims)
    pd = primitive_desc(op, attr, target_of(isa))
    assert pd.impl_name() == "native:narrow_tiles"
    got = native.results(pd, args)[Arg.DST].astype(np.float64)
    want, bound = bounded(left, right, added if bias_type else 0.0, residual, steps, dst_type)
    assert (np.abs(got - want) <= bound).all(), (np.abs(got - want) / bound).max()


def _laid(dims: tuple[int, ...], dtype: str, layout: str) -> MemoryDesc:
    letters = "abcdefghijkl"[: len(dims)]
    if layout == "apart":
        steps = [1, dims[-1] + 3]
        for size in dims[-2:0:-1]:
            steps.append(steps[-1] * size + 5)
        return MemoryDesc(dims, dtype, strides=tuple(reversed(steps)))
    tags = {"rows": "", "columns": f"{letters[:-2]}{letters[-1]}{letters[-2]}", "packed":
            f"{letters[:-2]}{letters[-1].upper()}{letters[-2]}16{letters[-1]}"}  # fmt: skip
    return MemoryDesc(dims, dtype, tags[layout])


#: Shape (M, N, K), outer dimensions, data types, layouts, post-ops.
PROBLEMS: tuple[tuple[Any, ...], ...] = (
    ((1, 67, 301), ((), ()), ("f16", "f16", "f16", "f16"), ("rows", "packed"), "r"),
    ((1, 1070, 40), ((), ()), ("bf16", "bf16", "", "bf16"), ("rows", "rows"), "ar"),
    ((1, 21, 77), ((3,), (3,)), ("f16", "f16", "", "f32"), ("rows", "columns"), ""),
    ((3, 130, 65), ((), ()), ("bf16", "bf16", "f32", "bf16"), ("rows", "packed"), "a"),
    ((4, 15, 18), ((2,), (1,)), ("f32", "f16", "f16", "f16"), ("apart", "packed"), ""),
    ((31, 49, 2100), ((), ()), ("f16", "f16", "f16", "f16"), ("rows", "packed"), "ra"),
    ((29, 33, 31), ((2, 1), (1, 3)), ("bf16", "bf16", "bf16", "bf16"), ("columns", "columns"), "r"),
    ((43, 49, 35), ((), ()), ("bf16", "bf16", "f32", "bf16"), ("rows", "packed"), "r"),
    ((17, 19, 1024), ((2,), (2,)), ("f16", "f32", "", "f16"), ("rows", "apart"), "a"),
    ((5, 1, 9), ((), ()), ("f16", "bf16", "f16", "f32"), ("rows", "rows"), ""),
)


def test_packed_columns_are_converted_once_for_several_tiles(isa: str) -> None:
    for rows, known in ((42, ("x86-64-v3", "x86-64-v4")), (43, ("x86-64-v3",)), (128, ("x86-64-v3",)), (129, ())):
        op = Matmul(
            MemoryDesc((rows, 70), "f16"), MemoryDesc((70, 40), "f16", "any"), None, MemoryDesc((rows, 40), "f16")
        )
        names = {spec.generator for spec in primitive_desc(op, PrimitiveAttr(), target_of(isa)).program().kernels}
        in_registers = isa in known
        assert ("narrow_gemv" in names, "narrow_gemm" in names) == (in_registers, not in_registers)


@pytest.mark.parametrize(
    "problem",
    [pytest.param(problem, marks=[pytest.mark.slow] * (number % 3 > 0)) for number, problem in enumerate(PROBLEMS)],
    ids=str,
)
def test_an_error_is_that_of_sums_in_float32(native: NativeRunner, isa: str, problem: tuple[Any, ...]) -> None:
    check(native, isa, *problem)


def test_one_row_and_two_are_multiplied_by_any_number_of_packed_blocks(native: NativeRunner, isa: str) -> None:
    # AVX2 sums four blocks together for one row, two for two, and those at the end one by one; an item of work has eight.
    rng = np.random.default_rng()
    for rows in (1, 2):
        for dtype in ("f16", "bf16"):
            for columns in (64, 80, *(int(n) for n in rng.integers(33, 300, 2))):
                shape, kinds = (rows, columns, int(rng.integers(1, 70))), ("f32", dtype, dtype, dtype)
                check(native, isa, shape, ((2,), (2,)), kinds, ("rows", "packed"), "r")


#: Rows, and the layout of weights.
INNER = ((1, "packed"), (1, "columns"), (30, "rows"), (30, "columns"), (4, "packed"))


@pytest.mark.parametrize(
    ("rows", "layout", "dtype"),
    [
        # Each with one type in `make test`.
        pytest.param(*problem, dtype, marks=[pytest.mark.slow] * ((number + other) % 2))
        for number, problem in enumerate(INNER)
        for other, dtype in enumerate(("f16", "bf16"))
    ],
)
@pytest.mark.one_in(3)
def test_inner_products_read_weights_of_16_bits(
    native: NativeRunner, isa: str, rows: int, layout: str, dtype: str
) -> None:
    check(native, isa, (rows, 37, 83), ((), ()), (dtype, dtype, dtype, dtype), ("rows", layout), "r", is_inner=True)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=40, deadline=None, database=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70)),
    outer=st.sampled_from([((), ()), ((3,), (3,)), ((1,), (2,)), ((2, 3), (2, 1))]),
    dtypes=st.one_of(
        st.tuples(ANY, NARROW, st.one_of(st.just(""), ANY), ANY), st.tuples(NARROW, ANY, st.just(""), ANY)
    ),
    layouts=st.tuples(
        st.sampled_from(["rows", "columns", "apart"]), st.sampled_from(["rows", "columns", "apart", "packed"])
    ),
    steps=st.sampled_from(["", "r", "a", "ra", "ar"]),
)
def test_errors_are_those_of_sums_in_float32(native: NativeRunner, level: str, **drawn: Any) -> None:
    target_of(level)
    check(native, level, **drawn)


def test_a_product_over_nothing_is_the_bias(native: NativeRunner, isa: str) -> None:
    for rows, columns in ((1, 20), (2, 40), (7, 20), (14, 130)):
        op = Matmul(
            MemoryDesc((rows, 0), "f16"), MemoryDesc((0, columns), "f16"), MemoryDesc((1, columns), "f16"),
            MemoryDesc((rows, columns), "f16"),
        )  # fmt: skip
        bias = np.arange(columns, dtype=np.float16).reshape(1, columns)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        args: dict[int, Any] = {Arg.SRC: np.zeros((rows, 0), np.float16), Arg.BIAS: bias}
        args[Arg.WEIGHTS] = np.zeros((0, columns), np.float16)
        np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], np.broadcast_to(bias, (rows, columns)))


@pytest.mark.parametrize("rows", [1, 9])
def test_results_are_rounded_to_even_once_and_special_numbers_stay(native: NativeRunner, isa: str, rows: int) -> None:
    # 2049 is between two numbers of f16, 65520 the first that is infinite; sums of float32 hold all of these.
    left = np.tile(np.array([[1.0, 2048.0, 65504.0, np.inf, np.nan, 2.0**-24]], np.float16), (rows, 1))
    right = np.zeros((6, 7), np.float16)
    right[:2, 0] = 1, 1  # 2049 -> 2048
    right[:2, 1] = 3, 1  # 2051 -> 2052
    right[[0, 2], 2] = 15, 1  # 65519
    right[[0, 2], 3] = 16, 1  # 65520
    right[5, 4] = 0.5  # half of the least number
    right[5, 5] = 1.5
    md = MemoryDesc((rows, 6), "f16"), MemoryDesc((6, 7), "f16", "Ba16b"), MemoryDesc((rows, 7), "f16")
    pd = primitive_desc(Matmul(md[0], md[1], None, md[2]), PrimitiveAttr(), target_of(isa))
    finite = left.copy()
    finite[:, 3:5] = 0
    got = native.results(pd, {Arg.SRC: finite, Arg.WEIGHTS: right})[Arg.DST]
    np.testing.assert_array_equal(
        got, np.tile(np.array([[2048, 2052, 65504, np.inf, 0, 2.0**-23, 0]], np.float16), (rows, 1))
    )
    relu = PrimitiveAttr((PostOp("eltwise", "relu"),))
    got = native.results(primitive_desc(Matmul(md[0], md[1], None, md[2]), relu, target_of(isa)),
                         {Arg.SRC: left, Arg.WEIGHTS: np.ones((6, 7), np.float16)})[Arg.DST]  # fmt: skip
    assert np.isnan(got).all()
