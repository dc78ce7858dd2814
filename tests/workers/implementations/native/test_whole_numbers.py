"""Integers whose arithmetic wraps, against NumPy's own: extreme numbers, exact in all bits, native and reference alike."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    LIMITS,
    WRAPPING,
    Arg,
    Binary,
    CumulativeSum,
    Matmul,
    MemoryDesc,
    OpDesc,
    PrimitiveAttr,
    Reduction,
    Reorder,
    Scatter,
    Sum,
    multiple_src,
)
from poolrt.workers.implementations.primitive_desc import primitive_desc, primitive_descs
from tests.references import numpy_type
from tests.references.scatter import scatter
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
ARITHMETIC: Final = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
COMPARISONS: Final = {
    "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
BITS: Final[dict[str, Any]] = {
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "shift_left": np.left_shift,
    "shift_right": np.right_shift, "wrap_add": np.add, "wrap_sub": np.subtract, "wrap_mul": np.multiply,
    "wrap_abs_diff": lambda x, y: np.where(x < y, y - x, x - y),
    "wrap_pow": lambda x, y: np.where((y < 0) & (abs(x) != 1), 0, np.power(x, np.where(y < 0, y & 1, y))),
}  # fmt: skip
REDUCTIONS: Final[dict[str, Any]] = {"sum": np.sum, "mul": np.prod, "max": np.max, "min": np.min}


def drawn(dims: tuple[int, ...], dtype: str) -> Array:
    """Return numbers of a type, many of them near its limits and near 2**53 and 0."""
    rng, (low, high) = np.random.default_rng(), LIMITS[dtype]
    anchors = [a for a in (low, low + 1, high - 1, high, 0, 1, -1, 2**53, 2**53 + 1, 2**63) if low <= a <= high]
    found = rng.integers(low, high, dims, numpy_type(dtype), endpoint=True)
    chosen = rng.choice(np.array(anchors, numpy_type(dtype)), dims)
    return np.where(rng.random(dims) < 0.5, chosen, found)


def both(native: NativeRunner, op: OpDesc, args: dict[int, Array], wanted: Array, isa: str) -> None:
    """Compare the first native implementation, and the reference, with the expected results."""
    found = list(primitive_descs(op, PrimitiveAttr(), target_of(isa)))
    assert found[0].impl_name().startswith("native:"), op
    for pd in (found[0], found[-1]):
        got = native.results(pd, args)[Arg.DST]
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted, f"{pd.impl_name()} {op}")


def types(*others: str) -> list[Any]:
    """Return the types whose arithmetic wraps: u64 and s16 in the default tests, the others in the thorough ones."""
    return [d if d in ("u64", *others) else pytest.param(d, marks=pytest.mark.slow) for d in WRAPPING]


@pytest.mark.parametrize("dtype", types())
@pytest.mark.parametrize(
    "algorithm", ["mul", *(pytest.param(a, marks=pytest.mark.slow) for a in ("add", "sub", "max", "min"))]
)
def test_arithmetic_is_that_of_numpy(native: NativeRunner, isa: str, dtype: str, algorithm: str) -> None:
    for left, right in (((3, 37), (3, 37)), ((2, 1, 19), (1, 5, 1))):
        x, y = drawn(left, dtype), drawn(right, dtype)
        wanted = ARITHMETIC[algorithm](x, y)
        op = Binary(MemoryDesc(left, dtype), MemoryDesc(right, dtype), MemoryDesc(wanted.shape, dtype), algorithm)
        both(native, op, {Arg.SRC: x, Arg.SRC_1: y}, wanted, isa)


@pytest.mark.parametrize("dtype", types())
@pytest.mark.parametrize(
    "algorithm", ["lt", *(pytest.param(a, marks=pytest.mark.slow) for a in ("ge", "gt", "le", "eq", "ne"))]
)
def test_comparisons_see_every_bit(native: NativeRunner, isa: str, dtype: str, algorithm: str) -> None:
    x = drawn((5, 33), dtype)
    y = np.where(np.random.default_rng().random(x.shape) < 0.5, x, x ^ np.asarray(1, x.dtype))
    op = Binary(MemoryDesc(x.shape, dtype), MemoryDesc(x.shape, dtype), MemoryDesc(x.shape, "bool"), algorithm)
    both(native, op, {Arg.SRC: x, Arg.SRC_1: y}, COMPARISONS[algorithm](x, y), isa)


@pytest.mark.parametrize("dtype", [d if d == "u32" else pytest.param(d, marks=pytest.mark.slow) for d in LIMITS])
def test_bits_are_combined_and_shifted(native: NativeRunner, isa: str, dtype: str) -> None:
    kind, bits = numpy_type(dtype), 8 * numpy_type(dtype).itemsize
    for algorithm, function in BITS.items():
        x, y = drawn((5, 37), dtype), drawn((5, 37), dtype)
        if algorithm.startswith("shift"):
            y = np.random.default_rng().integers(0, min(127, 2 * bits), x.shape).astype(kind)
        wanted = function(x, y)
        md = MemoryDesc(x.shape, dtype)
        both(native, Binary(md, md, md, algorithm), {Arg.SRC: x, Arg.SRC_1: y}, wanted, isa)


@pytest.mark.parametrize("dtype", ["s32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("s8", "u8"))])
def test_arithmetic_that_wraps_is_broadcast(native: NativeRunner, isa: str, dtype: str) -> None:
    for left, right in (
        ((3, 701), (3, 701)),
        ((2, 1, 19), (1, 5, 1)),
        ((4, 33), (1, 33)),
        ((7, 5), (7, 1)),
        ((67,), (1,)),
    ):
        x, y = drawn(left, dtype), drawn(right, dtype)
        for first, second in ((x, y), (y, x)):
            for algorithm in ("wrap_add", "wrap_sub", "wrap_mul", "wrap_abs_diff"):
                wanted = BITS[algorithm](first, second)
                src0, src1, dst = (MemoryDesc(each.shape, dtype) for each in (first, second, wanted))
                both(native, Binary(src0, src1, dst, algorithm), {Arg.SRC: first, Arg.SRC_1: second}, wanted, isa)


@pytest.mark.parametrize("dtype", types())
def test_products_of_matrices_wrap(native: NativeRunner, isa: str, dtype: str) -> None:
    for left, right in (((13, 19), (19, 21)), ((2, 3, 40), (1, 40, 16))):
        x, y = drawn(left, dtype), drawn(right, dtype)
        with np.errstate(over="ignore"):
            wanted = np.matmul(x, y)
        op = Matmul(MemoryDesc(left, dtype), MemoryDesc(right, dtype), None, MemoryDesc(wanted.shape, dtype))
        both(native, op, {Arg.SRC: x, Arg.WEIGHTS: y}, wanted, isa)


def test_products_of_s32_are_exact_beyond_53_bits_and_saturate(native: NativeRunner, isa: str) -> None:
    x = np.random.default_rng().integers(-(2**31), 2**31, (11, 2)).astype(np.int32)
    x = np.concatenate([x, x, x], 1)
    # The first two products of each pair cancel, except for one.
    y = np.array([[2**31 - 1], [2**31 - 2], [-(2**31) + 1], [-(2**31) + 3], [0], [1]], np.int32) * np.ones(17, np.int32)
    wanted = np.clip(x.astype(np.int64) @ y.astype(np.int64), -(2**31), 2**31 - 1).astype(np.int32)
    op = Matmul(MemoryDesc(x.shape, "s32"), MemoryDesc(y.shape, "s32"), None, MemoryDesc(wanted.shape, "s32"))
    pd = next(iter(primitive_descs(op, PrimitiveAttr(), target_of(isa))))
    assert pd.impl_name() == "native:typed_tiles"
    np.testing.assert_array_equal(native.results(pd, {Arg.SRC: x, Arg.WEIGHTS: y})[Arg.DST], wanted)


@pytest.mark.parametrize("dtype", types())
def test_sums_of_tensors_wrap(native: NativeRunner, isa: str, dtype: str) -> None:
    for count in (2, 6):
        given = [drawn((3, 21), dtype) for _ in range(count)]
        md = MemoryDesc((3, 21), dtype)
        with np.errstate(over="ignore"):
            wanted = np.sum(given, 0, numpy_type(dtype))
        both(native, Sum((md,) * count, md), {multiple_src(i): each for i, each in enumerate(given)}, wanted, isa)


@pytest.mark.parametrize("dtype", types("s16"))
@pytest.mark.parametrize(
    "algorithm", ["sum", *(pytest.param(a, marks=pytest.mark.slow) for a in ("mul", "max", "min"))]
)
def test_reductions_are_exact(native: NativeRunner, isa: str, dtype: str, algorithm: str) -> None:
    for dims, axes, tag in (
        ((3, 5, 39), (2,), ""), ((3, 5, 39), (0, 1), ""), ((2, 3, 4, 35), (1, 3), ""), ((3, 5, 19), (0,), "cab"),
        ((7,), (0,), ""), ((2, 0), (1,), ""), ((2, 3, 211), (2,), ""), ((37, 2), (1,), ""), ((5, 3, 3), (2,), "bac"),
        ((9, 3, 4), (0, 2), ""), ((41, 4), (1,), ""),
    ):  # fmt: skip
        x = drawn(dims, dtype)
        op = Reduction(
            MemoryDesc(dims, dtype, tag),
            MemoryDesc(tuple(1 if axis in axes else size for axis, size in enumerate(dims)), dtype),
            algorithm,
        )
        if x.size:
            with np.errstate(over="ignore"):
                wanted = REDUCTIONS[algorithm](x, axis=axes, keepdims=True)
        else:
            nothing = {"sum": 0, "mul": 1, "max": LIMITS[dtype][0], "min": LIMITS[dtype][1]}[algorithm]
            wanted = np.full(op.dst.dims, nothing)
        both(native, op, {Arg.SRC: x}, wanted.astype(numpy_type(dtype)), isa)


@pytest.mark.parametrize("algorithm", ["max", "min"])
@pytest.mark.parametrize("dtype", ["s32", "u8", pytest.param("s8", marks=pytest.mark.slow)])
@pytest.mark.one_in(3)
def test_extremes_of_integers_that_saturate_are_exact(
    native: NativeRunner, isa: str, dtype: str, algorithm: str
) -> None:
    for dims, axis in (
        ((3, 211), 1),
        ((3, 211), 0),
        ((2, 5, 19), 1),
        ((300,), 0),
        ((4, 64), 1),
        ((3, 0), 1),
        ((35, 3), 1),
    ):
        x = drawn(dims, dtype)
        md = MemoryDesc(tuple(1 if at == axis else size for at, size in enumerate(dims)), dtype)
        least, most = LIMITS[dtype]
        initial = least if algorithm == "max" else most
        wanted = REDUCTIONS[algorithm](x, axis=axis, keepdims=True, initial=initial)
        op = Reduction(MemoryDesc(dims, dtype), md, algorithm)
        assert primitive_desc(op, PrimitiveAttr(), target_of(isa)).impl_name() == "native:whole_reduction"
        both(native, op, {Arg.SRC: x}, wanted.astype(numpy_type(dtype)), isa)


@pytest.mark.parametrize("dtype", [*types(), "s32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("s8", "u8"))])
def test_running_sums_wrap(native: NativeRunner, isa: str, dtype: str) -> None:
    x = drawn((3, 19), dtype)
    md = MemoryDesc(x.shape, dtype)
    both(native, CumulativeSum(md, md, 1), {Arg.SRC: x}, np.cumsum(x, 1, x.dtype), isa)
    reverse = np.cumsum(x[:, ::-1], 1, x.dtype)[:, ::-1] - x
    both(native, CumulativeSum(md, md, 1, exclusive=True, reverse=True), {Arg.SRC: x}, reverse, isa)


def test_integers_become_others_exactly(native: NativeRunner, isa: str) -> None:
    source, target = np.random.default_rng().choice(list(LIMITS), 2, replace=False)
    convert(native, str(source), str(target), isa)


@pytest.mark.slow
@pytest.mark.parametrize("source", LIMITS)
def test_all_integers_become_all_others_exactly(native: NativeRunner, source: str, isa: str) -> None:
    for target in LIMITS:
        convert(native, source, target, isa)


def convert(native: NativeRunner, source: str, target: str, isa: str) -> None:
    x = drawn((3, 5, 21), source)
    for wraps in (False, True):
        op = Reorder(MemoryDesc(x.shape, source, "cab"), MemoryDesc(x.shape, target), wraps=wraps)
        low, high = LIMITS[target]
        kept = x if wraps else np.array([min(max(int(each), low), high) for each in x.ravel()], object).reshape(x.shape)
        both(native, op, {Arg.SRC: x}, kept.astype(numpy_type(target)), isa)


def test_functions_of_bits_take_integers_of_one_type() -> None:
    md = MemoryDesc((3,), "f32")
    with pytest.raises(ValueError, match="src0: expect integers of one type, got f32, f32, f32"):
        Binary(md, md, md, "bit_and")


def test_only_integers_can_lose_high_bits() -> None:
    with pytest.raises(ValueError, match="wraps: expect integers, got f32 and s8"):
        Reorder(MemoryDesc((3,), "f32"), MemoryDesc((3,), "s8"), wraps=True)


@pytest.mark.parametrize(
    "dtype", [d if d in ("s8", "u64") else pytest.param(d, marks=pytest.mark.slow) for d in LIMITS]
)
@pytest.mark.parametrize(
    "reduction", ["mul", *(pytest.param(r, marks=pytest.mark.slow) for r in ("add", "max", "min"))]
)
def test_updates_of_all_integers_wrap(native: NativeRunner, dtype: str, reduction: str, isa: str) -> None:
    for algorithm, indices, axis in (("elements", (9, 6), 0), ("nd", (9, 1), 0), ("nd", (5, 9, 2), 0)):
        updates = indices if algorithm == "elements" else (*indices[:-1], *(7, 6)[indices[-1] :])
        src, given = MemoryDesc((7, 6), dtype), MemoryDesc(updates, dtype)
        op = Scatter(src, MemoryDesc(indices, "s64"), given, src, algorithm, axis, reduction)
        args: dict[int, Array] = {
            Arg.SRC: drawn((7, 6), dtype), Arg.SRC_1: np.random.default_rng().integers(-6, 6, indices),
            Arg.SRC_2: drawn(updates, dtype),
        }  # fmt: skip
        with np.errstate(over="ignore"):
            wanted = scatter(op, args[Arg.SRC], args[Arg.SRC_1], args[Arg.SRC_2])
        both(native, op, args, wanted, isa)
