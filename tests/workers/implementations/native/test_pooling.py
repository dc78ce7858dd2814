"""pooling on native kernels."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MemoryDesc, Pooling, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from poolrt.workers.implementations.program import Launch
from poolrt.workers.kernels.native.compiler.codegen import compile_kernel
from poolrt.workers.kernels.spec import KernelSpec
from tests.references import converted, numpy_type, results
from tests.workers.cases import Case, cases
from tests.workers.cases.longs import long_maxima
from tests.workers.drawn import drawn
from tests.workers.kernels.native.test_conv import loops
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner


@pytest.mark.parametrize("case", [*cases("pooling"), *cases("pooling", "blocked")], ids=str)
@pytest.mark.one_in(3)
def test_native_result_is_right(case: Case, isa: str, native: NativeRunner) -> None:
    native.check(case, isa)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "s32"])
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding"])
def test_windows_that_are_runs_of_rows_are_reduced_as_wholes(dtype: str, algorithm: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for dims, length in (((2, 3, 320), 32), ((1, 2, 3, 200), 100), ((1, 2, 1, 5, 111), 37)):
        values = rng.integers(-90, 0, dims).astype(numpy_type(dtype))
        runs = values.astype(np.float64).reshape(*dims[:-1], -1, length)
        exact = runs.max(-1) if algorithm == "max" else runs.mean(-1)
        ones = (1,) * (len(dims) - 3)
        src, dst, zeros = MemoryDesc(dims, dtype), MemoryDesc(exact.shape, dtype), (*(0 for _ in ones), 0)
        op = Pooling(src, dst, algorithm, (*ones, length), (*ones, length), zeros, zeros, zeros)
        pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
        (launch,) = pd.program().launches
        assert isinstance(launch, Launch)
        assert launch.work == dst.elements
        found = native.results(pd, {Arg.SRC: values})[Arg.DST].astype(np.float64)
        np.testing.assert_allclose(found, np.rint(exact) if dtype == "s32" else exact, 1e-3 if dtype == "f16" else 1e-6)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "s32"])
@pytest.mark.parametrize("dims", [(7, 5, 3), (3, 4, 7, 7), (1, 2, 2, 5, 9), (2, 3, 256), (2, 3, 257), (3, 3, 1, 1)])
def test_small_planes_are_averaged_as_rows_on_avx2(
    dims: tuple[int, ...], dtype: str, isa: str, native: NativeRunner
) -> None:
    ones, zeros = (1,) * (len(dims) - 2), (0,) * (len(dims) - 2)
    src, dst = MemoryDesc(dims, dtype), MemoryDesc((*dims[:2], *ones), dtype)
    for algorithm in ("avg_include_padding", "avg_exclude_padding", "max"):
        op = Pooling(src, dst, algorithm, dims[2:], ones, zeros, zeros, zeros)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        elements = math.prod(dims[2:])
        by_rows = isa == "x86-64-v3" and algorithm != "max" and dtype in ("f32", "f16", "bf16") and 1 < elements <= 256
        assert ({kernel.generator for kernel in pd.program().kernels} == {"reduction"}) is by_rows
        values = np.random.default_rng().integers(-9, 9, dims)
        given = converted(values.astype(np.float64), dtype)
        exact = results(op, PrimitiveAttr(), {Arg.SRC: given})[Arg.DST]
        np.testing.assert_array_equal(native.results(pd, {Arg.SRC: given})[Arg.DST], converted(exact, dtype))


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "s32"])
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.one_in(3)
def test_runs_may_share_elements_and_leave_some(algorithm: str, dtype: str, isa: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    fixed = [((2, 3, 130), 64, 64), ((1, 2, 3, 100), 17, 17), ((2, 2, 1, 2, 50), 16, 5), ((1, 1, 333), 40, 7)]
    for dims, length, stride in (*fixed, ((2, 3, 200), int(rng.integers(16, 150)), int(rng.integers(5, 60)))):
        values = rng.integers(-90, 0, dims).astype(numpy_type(dtype))
        if algorithm == "max" and dtype[0] == "f":
            values[rng.random(dims) < 0.1] = np.nan
        seen = np.lib.stride_tricks.sliding_window_view(values.astype(np.float64), length, -1)[..., ::stride, :]
        exact = np.where(np.isnan(seen), -np.inf, seen).max(-1) if algorithm == "max" else seen.mean(-1)
        ones = (1,) * (len(dims) - 3)
        src, dst, zeros = MemoryDesc(dims, dtype), MemoryDesc(exact.shape, dtype), (*(0 for _ in ones), 0)
        op = Pooling(src, dst, algorithm, (*ones, length), (*ones, stride), zeros, zeros, zeros)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert [spec.generator for spec in pd.program().kernels] == ["pooling_runs"], f"{op}"
        found = native.results(pd, {Arg.SRC: values})[Arg.DST].astype(np.float64)
        np.testing.assert_allclose(found, np.rint(exact) if dtype == "s32" else exact, 1e-3 if dtype == "f16" else 1e-6)


GAPS = [
    pytest.param((14, 56), (3, 3), (1, 1), (1, 1), "pooling_slide", id="long rows"),
    pytest.param((9, 16), (2, 2), (1, 1), (2, 1), "pooling_slide", id="rows of 16"),
    pytest.param((11, 40), (3, 3), (1, 1), (0, 2), "pooling_slide", id="gaps between columns only"),
    pytest.param((11, 40), (3, 3), (1, 1), (3, 0), "pooling_slide", id="gaps between rows only"),
    pytest.param((14, 14), (3, 3), (1, 1), (1, 1), "pooling_planes", id="short rows"),
    pytest.param((28, 28), (3, 3), (2, 2), (1, 1), "pooling_planes", id="moved by two"),
    pytest.param((31, 21), (2, 3), (1, 1), (2, 1), "pooling_planes", id="windows that are no squares"),
    pytest.param((9, 12), (3, 2), (2, 1), (1, 0), "pooling_planes", id="gaps between rows of short planes"),
    pytest.param((6, 9, 33), (2, 3, 3), (1, 1, 1), (1, 2, 2), "pooling_slide", id="volumes"),
    pytest.param((6, 9, 11), (2, 3, 3), (2, 1, 1), (1, 1, 1), "pooling", id="volumes moved by two"),
]


@pytest.mark.parametrize(("size", "window", "strides", "gaps", "kernel"), GAPS)
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.one_in(4)
def test_windows_with_gaps_are_those_of_numpy(
    algorithm: str, size: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], gaps: tuple[int, ...],
    kernel: str, isa: str, native: NativeRunner,
) -> None:  # fmt: skip
    rng, axes = np.random.default_rng(), len(size)
    reach = tuple((count - 1) * (gap + 1) + 1 for count, gap in zip(window, gaps, strict=True))
    before = tuple(int(rng.integers(0, length)) for length in reach)
    after = tuple(length - 1 - left for length, left in zip(reach, before, strict=True))
    values = rng.integers(-90, 90, (2, 3, *size)).astype(np.float32)
    if algorithm == "max":
        values[rng.random(values.shape) < 0.1] = np.nan
    fill = {"max": -np.inf, "avg_include_padding": 0.0, "avg_exclude_padding": np.nan}[algorithm]
    around = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    padded = np.pad(values.astype(np.float64), around, constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + axes)))
    every = slice(None)
    seen = seen[every, every, *(slice(None, None, s) for s in strides), *(slice(None, None, g + 1) for g in gaps)]
    inner = tuple(range(-axes, 0))
    if algorithm == "max":
        exact = np.where(np.isnan(seen), -np.inf, seen).max(inner)
    elif algorithm == "avg_include_padding":
        exact = seen.mean(inner)
    else:
        counted = (~np.isnan(seen)).sum(inner)
        exact = np.nansum(seen, inner) / np.maximum(counted, 1)
    src, dst = MemoryDesc(values.shape, "f32"), MemoryDesc(exact.shape, "f32")
    op = Pooling(src, dst, algorithm, window, strides, gaps, before, after)
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    if isa == "x86-64-v4":
        assert kernel in str(pd.program().kernels), f"{op}"
    got = native.results(pd, {Arg.SRC: values})[Arg.DST]
    np.testing.assert_allclose(got, exact, 1e-6, 1e-6, err_msg=f"{op}")


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "s32"])
@pytest.mark.parametrize("algorithm", ["max", "avg_exclude_padding"])
@pytest.mark.one_in(3)
def test_windows_of_each_type_and_random_size_are_numpys(dtype: str, algorithm: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for stride in drawn((1, 2, 2, 3), 2):
        height, width, pad = int(rng.integers(4, 12)), int(rng.integers(5, 140)), int(rng.integers(0, 2))
        kernel = tuple(int(size) for size in rng.integers(2, 5, 2))
        values = rng.integers(-90, 0, (2, 3, height, width)).astype(numpy_type(dtype))
        fill = -np.inf if algorithm == "max" else np.nan
        padded = np.pad(values.astype(np.float64), [(0, 0)] * 2 + [(pad, pad)] * 2, constant_values=fill)
        seen = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))[:, :, ::stride, ::stride]
        exact = seen.max((4, 5)) if algorithm == "max" else np.nanmean(seen, (4, 5))
        dst = MemoryDesc(exact.shape, dtype)
        op = Pooling(
            MemoryDesc(values.shape, dtype), dst, algorithm, kernel, (stride,) * 2, (0, 0), (pad,) * 2, (pad,) * 2
        )
        pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
        assert pd.impl_name() == "native:pooling"
        got = native.results(pd, {Arg.SRC: values})[Arg.DST]
        if dtype == "s32":
            np.testing.assert_array_equal(got, np.rint(exact), f"{op}")
        else:
            near = 2e-3 if dtype == "f16" else 1e-6
            np.testing.assert_allclose(got.astype(np.float64), exact, near, err_msg=f"{op}")


@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.one_in(2)
def test_windows_over_small_planes_that_keep_their_size(algorithm: str, isa: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for axes in (2, 3):
        kernel = tuple(int(size) for size in rng.integers(1, 6, axes))
        sizes = tuple(int(size) for size in rng.integers(1, 20, axes))
        before = tuple(int(rng.integers(0, size)) for size in kernel)
        after = tuple(size - 1 - left for size, left in zip(kernel, before, strict=True))
        values = rng.standard_normal((2, 3, *sizes)).astype(np.float32)
        if algorithm == "max":
            values[rng.random(values.shape) < 0.1] = np.nan
        fill = np.nan if algorithm == "avg_exclude_padding" else -np.inf if algorithm == "max" else 0.0
        inner = tuple(range(2, 2 + axes))
        wide = np.pad(
            values.astype(np.float64), [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=fill
        )
        seen = np.lib.stride_tricks.sliding_window_view(wide, kernel, inner)
        windows = tuple(range(-axes, 0))
        if algorithm == "max":
            exact = np.where(np.isnan(seen), -np.inf, seen).max(windows)
        else:
            exact = np.nanmean(seen, windows)
        md = MemoryDesc(values.shape, "f32")
        op = Pooling(md, md, algorithm, kernel, (1,) * axes, (0,) * axes, before, after)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:pooling"
        got = native.results(pd, {Arg.SRC: values})[Arg.DST]
        np.testing.assert_allclose(got, exact, 1e-5, 1e-6, err_msg=f"{op}")


@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_large_windows_that_move_by_one_are_made_of_smaller_ones(
    algorithm: str, isa: str, native: NativeRunner
) -> None:
    rng = np.random.default_rng()
    for kernel in ((13, 13), *(tuple(int(size) for size in rng.integers(7, 17, 2)) for _ in range(3))):
        before, after = (tuple(int(rng.integers(0, size)) for size in kernel) for _ in range(2))
        sizes = tuple(int(rng.integers(size, 40)) for size in kernel)
        dtype = "f32" if kernel == (13, 13) else ("f32", "f16", "bf16")[int(rng.integers(3))]
        near = {"f32": 1e-5, "f16": 1e-3, "bf16": 8e-3}[dtype]
        values = rng.standard_normal((2, 3, *sizes)).astype(numpy_type(dtype))
        if algorithm == "max":
            values[rng.random(values.shape) < 0.1] = np.nan
        fill = np.nan if algorithm == "avg_exclude_padding" else -np.inf if algorithm == "max" else 0.0
        around = [(0, 0), (0, 0), *zip(before, after, strict=True)]
        wide = np.pad(values.astype(np.float64), around, constant_values=fill)
        seen = np.lib.stride_tricks.sliding_window_view(wide, kernel, (2, 3))
        exact = np.where(np.isnan(seen), -np.inf, seen).max((4, 5)) if algorithm == "max" else np.nanmean(seen, (4, 5))
        src, dst = MemoryDesc(values.shape, dtype), MemoryDesc(exact.shape, dtype)
        op = Pooling(src, dst, algorithm, kernel, (1, 1), (0, 0), before, after)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert [spec.generator for spec in pd.program().kernels] == ["pooling_doubled"], f"{op}"
        got = native.results(pd, {Arg.SRC: values})[Arg.DST]
        np.testing.assert_allclose(got.astype(np.float64), exact, near, 1e-6, err_msg=f"{op}")


@pytest.mark.parametrize("dtype", ["s64", "u64"])
@pytest.mark.parametrize(("axes", "tag"), [(1, "abc"), (2, "abcd"), (3, "abcde"), (2, "aBcd16b"), (1, "aBc16b")])
@pytest.mark.one_in(4)
def test_maxima_of_64_bit_integers_are_exact(axes: int, tag: str, dtype: str, isa: str, native: NativeRunner) -> None:
    rng = np.random.default_rng()
    for _ in drawn(range(5), 2):
        op, src, dst, _ = long_maxima(rng, dtype, axes, tag)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert pd.impl_name() == "native:pooling"
        np.testing.assert_array_equal(native.results(pd, {Arg.SRC: src})[Arg.DST], dst, f"{op}", strict=True)


@pytest.mark.parametrize("dtype", ["f32", "f64", "u8"])
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.one_in(4)
def test_few_columns_that_move_by_one_without_padding_along_rows(
    algorithm: str, dtype: str, isa: str, native: NativeRunner
) -> None:
    rng = np.random.default_rng()
    problems = (
        ((2, 2), (1, 1), (0, 0), (0, 0), 16), ((3, 2), (2, 1), (1, 0), (2, 0), 31), ((1, 4), (1, 1), (0, 0), (0, 0), 50),
        ((2, 2, 3), (1, 2, 1), (0, 0, 0), (1, 1, 0), 17), ((2,), (1,), (0,), (0,), 33),
    )  # fmt: skip
    for kernel, strides, dilations, padding, wanted in drawn(problems, 3):
        spatial = (*(int(size) for size in rng.integers(5, 9, len(kernel) - 1)), wanted + kernel[-1] - 1)
        sizes = tuple(
            (size + 2 * pad - (window - 1) * (more + 1) - 1) // stride + 1
            for size, window, stride, more, pad in zip(spatial, kernel, strides, dilations, padding, strict=True)
        )
        src, dst = MemoryDesc((2, 3, *spatial), dtype), MemoryDesc((2, 3, *sizes), dtype)
        op = Pooling(src, dst, algorithm, kernel, strides, dilations, padding, padding)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert any("pooling_near" in str(kernel) for kernel in pd.program().kernels)
        given = rng.integers(0, 90, src.dims).astype(np.float64)
        want = results(op, PrimitiveAttr(), {Arg.SRC: given})[Arg.DST]
        got = native.results(pd, {Arg.SRC: given})[Arg.DST]
        if dtype == "u8":
            np.testing.assert_array_equal(got, np.rint(want), f"{op}")
        else:
            np.testing.assert_allclose(got, want, 2e-7 if dtype == "f32" else 1e-15, err_msg=f"{op}")


@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.one_in(4)
def test_windows_of_two_rows_and_columns_that_move_by_one(algorithm: str, isa: str, native: NativeRunner) -> None:
    """Padded rows of any length and rows of less than 16 windows, in planes and in volumes of planes."""
    rng = np.random.default_rng()
    for _ in range(6):
        deep = int(rng.integers(0, 2))
        left, right = ((0,) * deep + tuple(int(size) for size in rng.integers(0, 3, 2)) for _ in range(2))
        spatial = (2,) * deep + (int(rng.integers(3, 9)), int(rng.integers(3, 40 if left[-1] else 16)))
        kernel, strides = (1,) * deep + (2, 2), (1,) * (deep + 2)
        places = zip(spatial, left, right, kernel, strict=True)
        sizes = tuple(size + before + behind - window + 1 for size, before, behind, window in places)
        src, dst = MemoryDesc((2, 3, *spatial), "f32"), MemoryDesc((2, 3, *sizes), "f32")
        op = Pooling(src, dst, algorithm, kernel, strides, (0,) * len(kernel), left, right)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        small = "pooling_slide"
        if isa == "x86-64-v3":
            small = "pooling_small" if sizes == spatial else "pooling_planes"
        assert [each.generator for each in pd.program().kernels] == [small], op
        given = rng.standard_normal(src.dims)
        want = results(op, PrimitiveAttr(), {Arg.SRC: given})[Arg.DST]
        np.testing.assert_allclose(native.results(pd, {Arg.SRC: given})[Arg.DST], want, 1e-6, 1e-6, err_msg=f"{op}")


@pytest.mark.parametrize("dtype", ["f32", "f16", "u8"])
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.one_in(4)
def test_few_columns_that_move_by_two_to_four(algorithm: str, dtype: str, isa: str, native: NativeRunner) -> None:
    """Rows of any length, windows that see each other's columns and such that leave some out, up to two deep."""
    rng = np.random.default_rng()
    for deep in drawn(((), (), (2,)), 1):
        stride = int(rng.integers(2, 5))
        kernel = (*deep, int(rng.integers(1, 5)), int(rng.integers(3 if stride == 2 else 2, 8)))
        left, right = (tuple(int(rng.integers(0, size)) for size in kernel) for _ in range(2))
        # Smaller planes of f32 have a kernel of their own.
        width = rng.integers(*((1700, 1900) if dtype == "f32" else (70, 200)))
        dims = (2, 3, *(int(size) for size in rng.integers(5, 9, len(deep) + 1)), int(width))
        strides = (*(int(size) for size in rng.integers(1, 4, len(kernel) - 1)), stride)
        sizes = tuple(
            (size + before + behind - window) // step + 1
            for size, before, behind, window, step in zip(dims[2:], left, right, kernel, strides, strict=True)
        )
        if (sizes[-1] - 1) * stride - left[-1] >= dims[-1]:
            sizes = (*sizes[:-1], sizes[-1] - 1)  # the last window begins in the row
        src, dst = MemoryDesc(dims, dtype), MemoryDesc((*dims[:2], *sizes), dtype)
        op = Pooling(src, dst, algorithm, kernel, strides, (0,) * len(kernel), left, right)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        assert any("pooling_shifts" in str(kernel) for kernel in pd.program().kernels), op
        given = rng.integers(0, 90, dims).astype(np.float64)
        want = results(op, PrimitiveAttr(), {Arg.SRC: given})[Arg.DST]
        got = native.results(pd, {Arg.SRC: given})[Arg.DST]
        if dtype == "u8":
            np.testing.assert_array_equal(got, np.rint(want), f"{op}")
        else:
            np.testing.assert_allclose(got.astype(np.float64), want, 5e-4 if dtype == "f16" else 2e-7, err_msg=f"{op}")


@pytest.mark.parametrize("algorithm", ["avg_include_padding", "avg_exclude_padding"])
def test_averages_of_columns_that_move_by_two_to_four_are_rounded_once(
    algorithm: str, isa: str, native: NativeRunner
) -> None:
    rng = np.random.default_rng()
    for stride, (rows, columns), (height, width) in (
        (2, (3, 3), (13, 112)), (2, (3, 3), (8, 33)), (2, (5, 4), (9, 70)), (3, (2, 5), (9, 50)), (4, (3, 7), (11, 130)),
    ):  # fmt: skip
        out = tuple((size + 1) // stride for size in (height, width))
        pad = tuple(
            max(0, (n - 1) * stride + k - 1 - size)
            for n, k, size in zip(out, (rows, columns), (height, width), strict=True)
        )
        src, dst = MemoryDesc((2, 3, height, width), "f32"), MemoryDesc((2, 3, *out), "f32")
        op = Pooling(src, dst, algorithm, (rows, columns), (stride, stride), (0, 0), (1, 1), pad)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        # Sums are exact.
        values = rng.integers(-(1 << 18), 1 << 18, src.dims).astype(np.float32)
        args: dict[int, NDArray[np.float32]] = {Arg.SRC: values}
        np.testing.assert_array_equal(
            native.results(pd, args)[Arg.DST], results(op, PrimitiveAttr(), args)[Arg.DST].astype(np.float32)
        )
        values[rng.random(src.dims) < 0.01] = np.inf
        values[rng.random(src.dims) < 0.01] = -np.inf
        values[rng.random(src.dims) < 0.005] = np.nan
        with np.errstate(invalid="ignore"):
            wanted = results(op, PrimitiveAttr(), args)[Arg.DST].astype(np.float32)
        np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], wanted)


@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_planes_of_windows_of_few_columns(algorithm: str, isa: str, native: NativeRunner) -> None:
    """Windows that see each other's columns and such that leave some out, with padding on any side, in rows of any length."""
    rng = np.random.default_rng()
    for stride, most in drawn(((1, 7), (1, 2), (2, 5), (3, 4), (5, 7), (7, 7), (4, 2)), 3):
        kernel = (int(rng.integers(1, 5)), int(rng.integers(1, most + 1)))
        left, right = (tuple(int(rng.integers(0, size)) for size in kernel) for _ in range(2))
        seen = 64 if isa == "x86-64-v4" else 32
        wanted = int(rng.integers(1, 60 if 15 * stride + most <= seen else (seen - most) // stride + 2))
        width = max(1, (wanted - 1) * stride + kernel[1] - left[1] - right[1] + int(rng.integers(0, stride)))
        dims = (2, 3, int(rng.integers(4, 9)), width)
        sizes = tuple(
            (size + before + behind - window) // stride + 1
            for size, before, behind, window in zip(dims[2:], left, right, kernel, strict=True)
        )
        src, dst = MemoryDesc(dims, "f32"), MemoryDesc((*dims[:2], *sizes), "f32")
        op = Pooling(src, dst, algorithm, kernel, (stride,) * 2, (0, 0), left, right)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        # The weakest level has no loads with masks.
        if op.kernel != op.src.dims[2:] and isa != "x86-64-v2":
            others = {"pooling_near", "pooling_slide", "pooling_small", "pooling_doubled"} if stride == 1 else set()
            assert {each.generator for each in pd.program().kernels} <= {"pooling_planes", *others}, op
        given = rng.standard_normal(dims).astype(np.float32)
        given[rng.random(dims) < 0.02] = -np.inf
        want = results(op, PrimitiveAttr(), {Arg.SRC: given.astype(np.float64)})[Arg.DST]
        got = native.results(pd, {Arg.SRC: given})[Arg.DST]
        np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=f"{op}")


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.parametrize("isa", ["x86-64-v3", "x86-64-v4"])
def test_rows_of_few_columns_of_windows_stay_in_registers(isa: str, tmp_path: Path) -> None:
    for vectors in (2, 4) if isa == "x86-64-v4" else (2,):
        spec = KernelSpec.of("pooling_planes", algorithm="avg_exclude_padding", window=5, stride=2, vectors=vectors)
        rows = [body for body in loops(compile_kernel(spec, isa), tmp_path, "addps") if len(body) > 2]
        assert rows
        for body in rows:
            assert not [line for line in body if re.search("[xyz]mm", line) and "(%rsp" in line], body


@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_windows_with_padding_on_any_side_are_those_of_the_reference(algorithm: str, native: NativeRunner) -> None:
    """Large windows, which are pooled along the width first, and smaller ones that move by more, in rows of every length."""
    rng = np.random.default_rng()
    for stride in drawn((1, 1, 1, 2, 2, 2, 3, 4), 4):
        kernel = tuple(int(size) for size in rng.integers(*((5, 12) if stride == 1 else (2, 9)), 2))
        left, right = (tuple(int(rng.integers(0, size)) for size in kernel) for _ in range(2))
        dims = (2, 3, int(rng.integers(12, 20)), int(rng.integers(12, 90)))
        sizes = tuple(
            (size + before + behind - window) // stride + 1
            for size, before, behind, window in zip(dims[2:], left, right, kernel, strict=True)
        )
        op = Pooling(
            MemoryDesc(dims, "f32"), MemoryDesc((*dims[:2], *sizes), "f32"), algorithm, kernel, (stride,) * 2, (0, 0), left,
            right,
        )  # fmt: skip
        pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
        assert pd.impl_name() == "native:pooling"
        given = rng.integers(-90, 90, dims).astype(np.float64)
        want = results(op, PrimitiveAttr(), {Arg.SRC: given})[Arg.DST]
        got = native.results(pd, {Arg.SRC: given})[Arg.DST]
        # Sums of whole numbers are exact, and divided once.
        np.testing.assert_array_equal(got, want.astype(np.float32), f"{op}")


VOLUMES = [
    pytest.param((4, 7, 7), (3, 3, 3), (1, 1, 1), 1, id="rows of 7"),
    pytest.param((8, 5, 21), (3, 3, 3), (1, 1, 1), 1, id="rows of 21"),
    pytest.param((6, 3, 3), (2, 2, 2), (1, 2, 2), 0, id="slabs of 9"),
    pytest.param((9, 9, 40), (5, 5, 5), (1, 1, 1), 2, id="windows of 5"),
    pytest.param((7, 2, 30), (4, 1, 1), (1, 1, 1), 0, id="along the depth only"),
    pytest.param((6, 8, 18), (2, 3, 3), (1, 2, 2), 1, id="moved by two in slabs"),
    pytest.param((3, 16, 16), (3, 16, 16), (1, 1, 1), 1, id="nearly all"),
]


@pytest.mark.parametrize(("size", "window", "strides", "pad"), VOLUMES)
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.one_in(4)
def test_windows_that_share_slabs_are_those_of_numpy(
    algorithm: str, size: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], pad: int, isa: str,
    native: NativeRunner,
) -> None:  # fmt: skip
    rng = np.random.default_rng()
    pads = tuple(min(pad, length - 1) for length in window)
    for tag, channels, dilation in (("", 3, 0), ("aBcde16b", 20, 0), ("", 2, 1)):
        far = (dilation, 0, 0)
        if (window[0] - 1) * (dilation + 1) >= size[0] + 2 * pads[0]:
            continue
        values = rng.integers(-90, 90, (2, channels, *size)).astype(np.float32)
        if algorithm == "max":
            values[rng.random(values.shape) < 0.02] = -np.inf
        widths = [(0, 0)] * 2 + [(each, each) for each in pads]
        fill = {"max": -np.inf, "avg_include_padding": 0.0, "avg_exclude_padding": np.nan}[algorithm]
        padded = np.pad(values.astype(np.float64), widths, constant_values=fill)
        reach = ((window[0] - 1) * (dilation + 1) + 1, *window[1:])
        seen = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3, 4))
        seen = seen[:, :, :: strides[0], :: strides[1], :: strides[2], :: dilation + 1]
        exact = seen.max((5, 6, 7)) if algorithm == "max" else np.nanmean(seen, (5, 6, 7))
        dst = MemoryDesc(exact.shape, "f32", tag)
        op = Pooling(MemoryDesc(values.shape, "f32", tag), dst, algorithm, window, strides, far, pads, pads)
        pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
        kernels = str(pd.program().kernels)
        assert "pooling_slabs" in kernels or ("pooling_small" in kernels and isa == "x86-64-v3")
        got = native.results(pd, {Arg.SRC: values})[Arg.DST]
        np.testing.assert_array_equal(got, exact.astype(np.float32), f"{op}")


@pytest.mark.parametrize("size", [(14, 14), (8, 8), (4, 2), (5, 4), (150, 30), (7, 26), (3, 6, 10)])
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_pairs_of_columns_that_cover_short_rows(
    algorithm: str, size: tuple[int, ...], isa: str, native: NativeRunner
) -> None:
    rng = np.random.default_rng()
    *deep, height, width = size
    values = rng.normal(size=(3, 5, *size)).astype(np.float32)
    values[rng.random(values.shape) < 0.02] = np.inf
    pairs = values[..., : height // 2 * 2, :].reshape(3, 5, *deep, height // 2, 2, width // 2, 2)
    exact = pairs.max((-3, -1)) if algorithm == "max" else pairs.astype(np.float64).mean((-3, -1))
    ones, zeros, twos = (1,) * len(deep), (0,) * len(size), (*(1,) * len(deep), 2, 2)
    src, dst = MemoryDesc(values.shape, "f32"), MemoryDesc((3, 5, *deep, height // 2, width // 2), "f32")
    op = Pooling(src, dst, algorithm, (*ones, 2, 2), twos, zeros, zeros, zeros)
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert [kernel.generator for kernel in pd.program().kernels] == ["pooling_pairs"]
    np.testing.assert_allclose(native.results(pd, {Arg.SRC: values})[Arg.DST], exact, 1e-6, 1e-6, err_msg=f"{op}")
