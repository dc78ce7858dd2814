"""Arg reduction on native kernels: every data type, axes of any stride, equal elements and NaN."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, ArgReduction, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
TYPES = ("f16", "f32", "f64", "bf16", "s64", "u64", "s32", "u32", "s16", "u16", "s8", "u8", "bool")


def drawn(dims: tuple[int, ...], dtype: str) -> Array:
    """Return any bits of a type but NaN, some of them often equal, zeros of both signs among them."""
    rng, kind = np.random.default_rng(), numpy_type(dtype)
    few = rng.integers(0, 2, dims).astype(kind)
    if dtype == "bool":
        return few
    wide = np.frombuffer(rng.bytes(int(np.prod(dims)) * kind.itemsize), kind).reshape(dims)
    if kind.kind in "iu":
        return np.where(rng.random(dims) < 0.5, wide, few)
    with np.errstate(invalid="ignore"):
        taken = (rng.random(dims) < 0.5) & ~np.isnan(wide)
    return np.where(taken, wide, np.where(rng.random(dims) < 0.5, few, -few))


def check(native: NativeRunner, op: ArgReduction, src: Array, isa: str) -> None:
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:arg_reduction"
    got = native.results(pd, {Arg.SRC: src})[Arg.DST]
    wide = src.astype(np.float32) if src.dtype in (np.float16, ml_dtypes.bfloat16) else src
    flipped = np.flip(wide, op.axis) if op.select_last else wide
    find = np.argmax if op.algorithm == "max" else np.argmin
    want = find(flipped, op.axis, keepdims=True)
    np.testing.assert_array_equal(got, src.shape[op.axis] - 1 - want if op.select_last else want, str(op))


@pytest.mark.parametrize("dtype", ["f16", *(pytest.param(t, marks=pytest.mark.slow) for t in TYPES if t != "f16")])
def test_the_first_or_last_of_equal_elements_along_any_axis(native: NativeRunner, isa: str, dtype: str) -> None:
    problems: list[tuple[tuple[int, ...], int, str, bool]] = [
        ((7, 53), 1, "max", False),
        ((41, 39), 0, "min", True),
        ((29, 11), 1, "max", False),
        ((3, 11), 0, "min", True),
        ((1, 23), 0, "min", True),
    ]
    if dtype != "f16":
        problems += [((3, 5, 100), 2, "min", True), ((40, 3), 0, "max", False), ((5, 1), 1, "max", True)]
    for dims, axis, algorithm, last in problems:
        src = drawn(dims, dtype)
        if src.dtype.kind not in "biu":
            src.flat[src.size // 3] = np.nan
        dst = MemoryDesc((*dims[:axis], 1, *dims[axis + 1 :]), ("s64", "s32")[last])
        check(native, ArgReduction(MemoryDesc(dims, dtype), dst, algorithm, axis, last), src, isa)


@pytest.mark.slow
def test_strides_and_orders_of_dimensions(native: NativeRunner, isa: str) -> None:
    for tag in ("cab", (500, 70, 3), "bca"):
        for axis in range(3):
            dims = (19, 7, 21)
            dst = MemoryDesc((*dims[:axis], 1, *dims[axis + 1 :]), "s64", "bac")
            check(native, ArgReduction(MemoryDesc(dims, "f32", tag), dst, "max", axis), drawn(dims, "f32"), isa)


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: ArgReduction, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    src, dst = MemoryDesc((2, 32, 3), "f32"), MemoryDesc((1, 32, 3), "s64")
    refused(ArgReduction(src.with_tag("aBc16b"), dst, "max", 0), "blocks")
    refused(ArgReduction(src, MemoryDesc((1, 32, 3), "f32"), "max", 0), "indices of f32")
    refused(ArgReduction(src, dst, "max", 0), "post-ops", PrimitiveAttr((PostOp("eltwise", "relu"),)))
