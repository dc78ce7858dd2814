"""Cumulative sums on native kernels: every direction, axes of any stride."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, CumulativeSum, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from poolrt.workers.implementations.program import Launch
from tests.references import numpy_type
from tests.references.cumulative_sum import cumulative_sum
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def check(
    native: NativeRunner, dims: tuple[int, ...], dtype: str, axis: int, number: int, tag: Any, isa: str,
    name: str = "native:cumulative_sum",
) -> None:  # fmt: skip
    """Sums of few numbers are exact in every type."""
    src, dst = MemoryDesc(dims, dtype, tag), MemoryDesc(dims, dtype)
    op = CumulativeSum(src, dst, axis, bool(number & 1), bool(number & 2))
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == name
    given = np.random.default_rng().integers(0, 3, dims).astype(numpy_type(dtype))
    got = native.results(pd, {Arg.SRC: given})[Arg.DST]
    np.testing.assert_array_equal(got, cumulative_sum(op, given), str(op))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["s64", "f32", "f64", "s32", "s8", "u8"])
def test_sums_along_any_axis_in_both_directions(native: NativeRunner, isa: str, dtype: str) -> None:
    for number in range(4):
        check(native, (3, 7, 19), dtype, number % 3, number, "", isa)
        check(native, (3, 7, 19), dtype, 1, number, ((1000, 100, 5), "cab")[number % 2], isa)


@pytest.mark.parametrize(
    ("dims", "axis"), [((9, 200), 0), ((2, 5, 2100), 1), ((6, 3, 65), 0), ((3, 1, 2, 77), 0), ((2, 9, 31), 1)]
)
def test_rows_are_added_up_in_pieces_of_any_width(
    native: NativeRunner, isa: str, dims: tuple[int, ...], axis: int
) -> None:
    number = np.random.default_rng().integers(4)
    check(native, dims, "f32", axis, int(number), "", isa)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.one_in(2)
def test_floats_of_16_bits_are_added_up_by_kernels_of_f32(native: NativeRunner, isa: str, dtype: str) -> None:
    for number in range(4):
        for tag in ("", "cab"):
            check(native, (3, 7, 19), dtype, number % 3, number, tag, isa, "nested:f32")


@pytest.mark.parametrize(("dims", "items"), [((9, 2000), 1), ((9, 2100), 2), ((3, 9, 300), 3), ((8200, 257), 5)])
def test_rows_of_many_bytes_are_divided_and_others_are_not(
    native: NativeRunner, dims: tuple[int, ...], items: int
) -> None:
    md, axis = MemoryDesc(dims, "f32"), len(dims) - 2
    pd = primitive_desc(CumulativeSum(md, md, axis), PrimitiveAttr(), cpu_target())
    assert [launch.work for launch in pd.program().launches if isinstance(launch, Launch)] == [items]
    given = np.random.default_rng().integers(-3, 3, dims).astype(np.float32)
    np.testing.assert_array_equal(native.results(pd, {Arg.SRC: given})[Arg.DST], np.cumsum(given, axis))


@pytest.mark.slow
def test_small_numbers_are_not_lost_in_large_sums(native: NativeRunner) -> None:
    md = MemoryDesc((1 << 20,), "f32")
    pd = primitive_desc(CumulativeSum(md, md, 0), PrimitiveAttr(), cpu_target())
    given = np.full(1 << 20, 0.1, np.float32)
    got = native.results(pd, {Arg.SRC: given})[Arg.DST]
    np.testing.assert_array_equal(got, np.cumsum(given.astype(np.float64)).astype(np.float32))


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    truths = MemoryDesc((2, 32), "bool")
    with pytest.raises(UnsupportedPrimitive, match="data types bool and bool"):
        primitive_desc(CumulativeSum(truths, truths, 0), PrimitiveAttr(), cpu_target(), references=False)
