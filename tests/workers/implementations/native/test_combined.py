"""Select, comparisons, logic, whole quotients and remainders on native kernels, of every data type and any strides."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, Binary, MemoryDesc, PostOp, PrimitiveAttr, Select
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
Sizes = tuple[int, ...]
FUNCTIONS: Final[dict[str, Any]] = {
    "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "eq": np.equal, "ne": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip
TYPES: Final = ("f64", "f32", "s64", "s32", "s8", "u8")


def drawn(dims: Sizes, dtype: str) -> Array:
    """Return any numbers of a type, with its limits, NaN and infinities, and a few small ones that are often equal."""
    rng, kind = np.random.default_rng(), numpy_type(dtype)
    small = rng.integers(0, 3, dims).astype(kind)
    if dtype == "bool":
        return small
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        wide = rng.integers(limits.min, limits.max, dims, kind, endpoint=True)
        special = np.array([limits.min, limits.max, 0, -1 if limits.min else 1, 1], kind)
    else:
        wide = rng.standard_normal(dims).astype(kind) * kind.type(100)
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], kind)
    chosen = rng.integers(0, 3, dims)
    return np.asarray(np.where(chosen == 0, wide, np.where(chosen == 1, small, rng.choice(special, dims))))


def shapes(rank: int) -> tuple[Sizes, tuple[Sizes, Sizes, Sizes]]:
    """Return a shape of a rank and three that broadcast to it."""
    rng = np.random.default_rng()
    dst = tuple(int(size) for size in rng.choice((1, 2, 3, 17, 70), rank))
    first, second, third = (tuple(int(rng.choice((1, size, size))) for size in dst) for _ in range(3))
    return dst, (first, second, third)


def run(native: NativeRunner, op: Any, name: str, args: dict[int, Array], isa: str = "") -> Array:
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa or host_isa()))
    assert pd.impl_name() == name
    return native.results(pd, args)[Arg.DST]


@pytest.mark.parametrize(
    "dtype", ["s8", *(pytest.param(t, marks=pytest.mark.slow) for t in ("f64", "bf16", "s64", "f32", "bool"))]
)
def test_select_moves_bits_of_any_type(native: NativeRunner, isa: str, dtype: str) -> None:
    for rank, tag in ((1, ""), (3, ""), (3, "cab"), (2, (100, 1))):
        dst, parts = shapes(rank)
        if isinstance(tag, tuple):
            dst, parts = (5, 70), ((5, 1), (1, 70), (5, 70))
        condition, src0, src1 = (drawn(dims, kind) for dims, kind in zip(parts, ("bool", dtype, dtype), strict=True))
        a, b, c = (MemoryDesc(p, k) for p, k in zip(parts, ("bool", dtype, dtype), strict=True))
        args: dict[int, Array] = {Arg.SRC: condition, Arg.SRC_1: src0, Arg.SRC_2: src1}
        got = run(native, Select(a, b, c, MemoryDesc(dst, dtype, tag)), "native:select", args, isa)
        want = np.broadcast_to(np.where(condition, src0.view(f"u{src0.itemsize}"), src1.view(f"u{src1.itemsize}")), dst)
        assert got.tobytes() == want.tobytes(), (parts, tag)


@pytest.mark.parametrize(
    "algorithm", ["lt", *(pytest.param(a, marks=pytest.mark.slow) for a in FUNCTIONS if a != "lt")]
)
def test_comparisons_and_logic_give_truth_values(native: NativeRunner, algorithm: str) -> None:
    for dtype in ("s64", "f16", *(TYPES[:2] if algorithm == "lt" else (*TYPES, "bf16", "bool"))):
        dst, (first, second, _) = shapes(3)
        dst = tuple(max(pair) for pair in zip(first, second, strict=True))
        x, y = drawn(first, dtype), drawn(second, dtype)
        for result in dict.fromkeys(("bool", dtype if dtype in ("s64", "f16", "bf16") else "bool")):
            op = Binary(MemoryDesc(first, dtype), MemoryDesc(second, dtype), MemoryDesc(dst, result), algorithm)
            got = run(native, op, "native:logic", {Arg.SRC: x, Arg.SRC_1: y})
            with np.errstate(invalid="ignore"):
                want = FUNCTIONS[algorithm](x, y)
            np.testing.assert_array_equal(got != 0, want, f"{algorithm} {dtype}")
            assert got.max() <= 1


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_floats_of_16_bits_are_compared_as_numbers(native: NativeRunner, isa: str, dtype: str) -> None:
    # All numbers, each with itself, its neighbours, and chosen ones
    x = np.arange(2**16).astype(np.uint16)
    others = (0x0000, 0x8000, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x7FFF, 0x0001, 0x8001, 0x3C00)
    for y in (x, np.roll(x, 1), *(np.full_like(x, other) for other in others[:: 1 if isa == host_isa() else 5])):
        left, right = (each.view(numpy_type(dtype)) for each in (x, y))
        md = MemoryDesc((2**16,), dtype)
        for algorithm in ("lt", "ne"):
            op = Binary(md, md, MemoryDesc((2**16,), "bool"), algorithm)
            got = run(native, op, "native:logic", {Arg.SRC: left, Arg.SRC_1: right}, isa)
            with np.errstate(invalid="ignore"):
                want = FUNCTIONS[algorithm](left, right)
            np.testing.assert_array_equal(got != 0, want, f"{algorithm} {y[0]}")


@pytest.mark.parametrize("algorithm", ["mod", "fmod"])
def test_remainders_of_floats_of_16_bits(native: NativeRunner, algorithm: str) -> None:
    x, y = drawn((701,), "f16"), drawn((701,), "f16")
    md = MemoryDesc((701,), "f16")
    got = run(native, Binary(md, md, md, algorithm), "nested:f32", {Arg.SRC: x, Arg.SRC_1: y})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.mod(x, y) if algorithm == "mod" else np.fmod(x, y))


def exact(algorithm: str, x: int, y: int, largest: int) -> int:
    """Return a quotient or remainder of Python's integers; the largest number replaces one beyond."""
    if y == 0:
        return 0
    floor, truncated = x // y, abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    found = {"floor_div": floor, "trunc_div": truncated, "mod": x - floor * y, "fmod": x - truncated * y}
    return min(found[algorithm], largest)


@pytest.mark.parametrize(
    "algorithm", ["floor_div", *(pytest.param(a, marks=pytest.mark.slow) for a in ("trunc_div", "mod", "fmod"))]
)
def test_quotients_and_remainders_of_integers_are_exact(native: NativeRunner, isa: str, algorithm: str) -> None:
    rng = np.random.default_rng()
    for dtype in ("s32", "u32", "s64", "s16", "u16", "s8", "u8"):
        x, y = drawn((701,), dtype), drawn((701,), dtype)
        # The quotients nearest to a whole number, from both sides
        limits = np.iinfo(x.dtype)
        y[::5], x[::5] = rng.integers(1, 100, 141), limits.max - rng.integers(0, 100, 141)
        x[1::5] = limits.min + rng.integers(0, 100, 140)
        md = MemoryDesc((701,), dtype)
        got = run(native, Binary(md, md, md, algorithm), "native:logic", {Arg.SRC: x, Arg.SRC_1: y}, isa)
        largest = int(np.iinfo(x.dtype).max)
        assert got.tolist() == [exact(algorithm, *pair, largest) for pair in zip(x.tolist(), y.tolist(), strict=True)]


@pytest.mark.parametrize("bits", [51, 53, 63])
@pytest.mark.parametrize(
    "algorithm", ["floor_div", *(pytest.param(a, marks=pytest.mark.slow) for a in ("trunc_div", "mod", "fmod"))]
)
def test_quotients_of_long_integers_are_exact(native: NativeRunner, isa: str, algorithm: str, bits: int) -> None:
    rng, count = np.random.default_rng(), 1003
    # Given dividends that are multiples of their divisors, or the numbers beside them, below a power of two
    ys = [int(rng.integers(1, 1 << int(size))) for size in rng.integers(1, bits + 1, count)]
    xs = [(((1 << bits) - 2) // y - int(rng.integers(0, 3))) * y + int(rng.integers(-1, 2)) for y in ys]
    for dtype in ("s64", "u64"):
        signs = [rng.choice((-1, 1), count).tolist() if dtype == "s64" else [1] * count for _ in range(2)]
        x, y = (
            np.array([each * sign for each, sign in zip(numbers, by, strict=True)], numpy_type(dtype))
            for numbers, by in zip(([abs(x) for x in xs], ys), signs, strict=True)
        )
        y[::97] = 0
        md = MemoryDesc((count,), dtype)
        got = run(native, Binary(md, md, md, algorithm), "native:logic", {Arg.SRC: x, Arg.SRC_1: y}, isa)
        largest = int(np.iinfo(x.dtype).max)
        assert got.tolist() == [exact(algorithm, *pair, largest) for pair in zip(x.tolist(), y.tolist(), strict=True)]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("algorithm", ["fmod", pytest.param("mod", marks=pytest.mark.slow)])
def test_remainders_of_floats_are_those_of_numpy(native: NativeRunner, isa: str, algorithm: str, dtype: str) -> None:
    rng, kind = np.random.default_rng(), numpy_type(dtype)
    y = drawn((7001,), dtype)
    # Quotients near whole numbers, small and large ones, and any bits
    with np.errstate(all="ignore"):
        near = (y * rng.integers(-(2**31), 2**31, 7001).astype(kind)).astype(kind)
        whole = (y * rng.integers(-9, 9, 7001).astype(kind)).astype(kind)
        neighbours = np.nextafter(whole, rng.choice(np.array([-np.inf, np.inf], kind), 7001))
        bits = rng.integers(0, 2 ** (8 * kind.itemsize) - 1, 7001, f"u{kind.itemsize}").view(kind)
        md = MemoryDesc((7001,), dtype)
        for x in (drawn((7001,), dtype), near, whole, neighbours, bits):
            got = run(native, Binary(md, md, md, algorithm), "native:logic", {Arg.SRC: x, Arg.SRC_1: y}, isa)
            want = np.mod(x, y) if algorithm == "mod" else np.fmod(x, y)
            np.testing.assert_array_equal(got, want)
            if algorithm == "fmod":
                numbers = ~np.isnan(want)
                np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: Any, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    floats, halves, truths = (MemoryDesc((2, 32), dtype) for dtype in ("f32", "f16", "bool"))
    refused(Select(floats, floats, floats, floats), "condition of data type f32")
    refused(Select(truths, floats, halves, floats), "conversion from f16 to f32")
    refused(Select(truths, floats, floats, floats), "post-ops", PrimitiveAttr((PostOp("eltwise", "relu"),)))
    blocked = MemoryDesc((2, 32, 3), "f32", "aBc16b")
    refused(Select(blocked, blocked, blocked, blocked), "condition of data type")
    refused(Binary(blocked, blocked, blocked, "lt"), "blocks are not supported")
    refused(Binary(MemoryDesc((2, 32), "f64"), floats, truths, "lt"), "data types f64 and f32 to bool")
    refused(Binary(floats, floats, floats, "floor_div"), "floor_div of f32")
    refused(Binary(truths, truths, truths, "mod"), "mod of bool to bool")
