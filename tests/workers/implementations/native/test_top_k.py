"""Top k on native kernels: every data type, ties, NaN, axes of any stride."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, TopK
from poolrt.workers.engines.target import cpu_target, host_isa
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.references.top_k import top_k
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


def check(
    native: NativeRunner,
    dims: tuple[int, ...],
    dtype: str,
    k: int,
    axis: int,
    largest: bool,
    tag: Any = "",
    isa: str = "",
    kernel: str = "",
) -> None:
    src, out = MemoryDesc(dims, dtype, tag), (*dims[:axis], k, *dims[axis + 1 :])
    kind = ("s64", "s32")[k % 2]
    op = TopK(src, MemoryDesc(out, dtype), MemoryDesc(out, kind), k, axis, largest)
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa or host_isa()))
    assert pd.impl_name() == "native:top_k"
    assert not kernel or [spec.generator for spec in pd.program().kernels] == [kernel]
    rng, real = np.random.default_rng(), numpy_type(dtype)
    given = rng.integers(0, 2 if dtype == "bool" else 40, dims).astype(real)
    if real.kind not in "biu":
        given = np.where(rng.random(dims) < 0.1, np.array(np.nan, real), given - np.array(20, real))
    got = native.results(pd, {Arg.SRC: given})
    values, indices = top_k(op, given.astype(np.float64))
    np.testing.assert_array_equal(got[Arg.DST_1], indices, str(op))
    np.testing.assert_array_equal(got[Arg.DST].astype(np.float64), values, str(op))


@pytest.mark.parametrize(
    "dtype",
    [
        "f16",
        *(pytest.param(t, marks=pytest.mark.slow) for t in ("f32", "f64", "bf16", "s64", "s32", "s8", "u8", "bool")),
    ],
)
def test_the_best_come_first_and_of_equal_ones_the_first(native: NativeRunner, dtype: str) -> None:
    check(native, (7, 90), dtype, 10, 1, True)
    check(native, (2, 20, 21), dtype, 5, 1, True)
    if dtype != "f16":
        check(native, (5, 33, 3), dtype, 33, 1, False)
        check(native, (99, 40), dtype, 65, 0, False)
        check(native, (90, 70), dtype, 1, 0, False, "ba")
        check(native, (4, 5, 6), dtype, 4, 2, True, (1000, 100, 7))


@pytest.mark.parametrize(
    "dtype", ["f32", *(pytest.param(t, marks=pytest.mark.slow) for t in ("f16", "f64", "s64", "u8", "bf16"))]
)
def test_the_best_of_short_rows(native: NativeRunner, isa: str, dtype: str) -> None:
    for dims, k in (((8, 7), 5), ((2, 37, 17), 5), ((19, 63), 63), ((50, 150), 11), ((67, 333), 5)):
        check(native, dims, dtype, k, len(dims) - 1, True, isa=isa)
    check(native, (4, 5, 18), dtype, 3, 2, True, (1000, 100, 3), isa)
    check(native, (4, 50, 6), dtype, 5, 1, True, "bca", isa)


@pytest.mark.parametrize(
    "dtype",
    [
        *("f32", "s64"),
        *(
            pytest.param(t, marks=pytest.mark.slow)
            for t in ("f16", "f64", "bf16", "s32", "u32", "u64", "s16", "s8", "bool")
        ),
    ],
)
@pytest.mark.parametrize("largest", [True, False])
def test_many_of_a_row_are_sorted(native: NativeRunner, isa: str, dtype: str, largest: bool) -> None:
    for dims, k, axis in (((1100,), 1100, 0), ((3, 900), 500, 1), ((2, 700, 3), 699, 1), ((70, 400), 400, 1)):
        check(native, dims, dtype, k, axis, largest, isa=isa, kernel="top_k_sorted")
    check(native, (4, 3, 600), dtype, 550, 2, largest, (5000, 1500, 2), isa, "top_k_sorted")


@pytest.mark.parametrize("dtype", ["s64", "u64", "f64"])
def test_all_bytes_of_keys_are_sorted(native: NativeRunner, dtype: str) -> None:
    kind = numpy_type(dtype)
    given = np.random.default_rng().integers(0, 256, (2, 900 * 8), np.uint8).view(kind)
    given[:, :600] = given[:, 300:]
    if dtype == "f64":
        given = np.where(np.isnan(given), 1.0, given)
    out = given.shape
    op = TopK(MemoryDesc(out, dtype), MemoryDesc(out, dtype), MemoryDesc(out, "s64"), out[1], 1, False)
    got = native.results(primitive_desc(op, PrimitiveAttr(), cpu_target()), {Arg.SRC: given})
    np.testing.assert_array_equal(got[Arg.DST_1], np.argsort(given, 1, kind="stable"))
    np.testing.assert_array_equal(got[Arg.DST], np.sort(given, 1))


@pytest.mark.parametrize(
    "dtype", ["f32", *(pytest.param(t, marks=pytest.mark.slow) for t in ("f16", "f64", "s64", "u8", "bf16"))]
)
def test_the_best_one_along_any_axis(native: NativeRunner, isa: str, dtype: str) -> None:
    for largest in (True, False):
        for dims in ((9, 80), (3, 17), (5, 16), (4, 7), (2, 33), (3, 1)):
            check(native, dims, dtype, 1, 1, largest, isa=isa)
        check(native, (21, 39), dtype, 1, 0, largest, isa=isa)
        check(native, (3, 5, 7), dtype, 1, 1, largest, isa=isa)
        check(native, (4, 5, 18), dtype, 1, 2, largest, (1000, 100, 3), isa)
        check(native, (4, 50, 6), dtype, 1, 1, largest, "bca", isa)


@pytest.mark.parametrize("dtype", ["f32", pytest.param("f64", marks=pytest.mark.slow)])
def test_the_best_of_equal_numbers_infinities_and_nan(native: NativeRunner, isa: str, dtype: str) -> None:
    kind = numpy_type(dtype)
    for row in ([0.0] * 37, [-np.inf] * 19, [np.nan] * 33, [1.0, np.inf] * 20, [-0.0, 0.0] * 11, [np.inf, np.nan] * 9):
        given = np.array([row], kind)
        for rows, k, largest in ((1, 1, True), (1, 1, False), (11, 9, True)):
            given = np.repeat(given[:1], rows, 0)
            out = (rows, k)
            op = TopK(MemoryDesc(given.shape, dtype), MemoryDesc(out, dtype), MemoryDesc(out, "s64"), k, 1, largest)
            got = native.results(primitive_desc(op, PrimitiveAttr(), target_of(isa)), {Arg.SRC: given})
            values, indices = top_k(op, given.astype(np.float64))
            np.testing.assert_array_equal(got[Arg.DST_1], indices, str(row[:2]))
            np.testing.assert_array_equal(got[Arg.DST], values)


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    src, dst = MemoryDesc((2, 32), "f32"), MemoryDesc((2, 3), "f32")
    with pytest.raises(UnsupportedPrimitive, match="indices of f32"):
        primitive_desc(TopK(src, dst, dst, 3, 1), PrimitiveAttr(), cpu_target(), references=False)
