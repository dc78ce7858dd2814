"""Quantisation, dequantisation and quantised additions, and maximum pooling of bytes, on the CPU engine."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    Binary,
    Eltwise,
    MemoryDesc,
    Pooling,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    Reorder,
    scales_of,
    zero_points_of,
)
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references import reference
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

Array = NDArray[Any]
DIMS = (2, 19, 13, 11)


def drawn(rng: np.random.Generator, dtype: str) -> Array:
    low, high = {"u8": (0, 256), "s8": (-128, 128), "f32": (-300, 300)}[dtype]
    whole = rng.integers(low, high, DIMS)
    return whole + rng.uniform(-1, 1, DIMS).astype(np.float32) if dtype == "f32" else whole


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("f32", "", "u8"),
        pytest.param("s8", "", "f32", marks=pytest.mark.slow),
        pytest.param("u8", "s8", "u8", marks=pytest.mark.slow),
    ],
)
def test_numbers_are_converted_by_scale_and_zero_point(
    native: NativeRunner, first: str, second: str, result: str, isa: str
) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Given one tensor, or two that are added and bounded, with scales and zero points
    sources = [Arg.SRC, Arg.SRC_1][: 1 + bool(second)]
    scales = {Arg.SRC: 0.37, Arg.SRC_1: 1.21, Arg.DST: 0.9}
    points = {Arg.SRC: 5, Arg.SRC_1: -3, Arg.DST: 17}
    used = [*sources, Arg.DST]
    steps = (PostOp("eltwise", "relu"),) if second else ()
    attr = PrimitiveAttr(steps, tuple(map(Quantisation, used)), tuple(map(Quantisation, used)))
    args: dict[int, Array] = {arg: drawn(rng, kind) for arg, kind in zip(sources, (first, second), strict=False)}
    value: Any = sum((args[arg] - points[arg]) * float(np.float32(scales[arg])) for arg in sources)
    for arg in used:
        args[scales_of(arg)], args[zero_points_of(arg)] = np.array([scales[arg]], np.float32), np.array([points[arg]])
    mds = [MemoryDesc(DIMS, kind, "acdb") for kind in (first, second, result) if kind]
    op = Binary(mds[0], mds[1], mds[2], "add") if second else Reorder(mds[0], mds[1])
    pd = primitive_desc(op, attr, target_of(isa))
    # When they are converted
    got = native.results(pd, args)[Arg.DST].astype(np.float64)
    # Then results are rounded once, but for values nearly half-way between two
    assert pd.impl_name().startswith("native:quantise")
    value = (np.maximum(value, 0.0) if second else value) / float(np.float32(scales[Arg.DST])) + points[Arg.DST]
    if result == "f32":
        np.testing.assert_allclose(got, value, rtol=1e-5)
        return
    want = np.clip(np.rint(value), 0, 255)
    halfway = np.abs(value - np.floor(value) - 0.5) < 1e-3
    assert np.array_equal(np.where(halfway, got, want), got)
    assert np.abs(got - want).max() <= 1


LIMITS = {"u8": (0, 255), "s8": (-128, 127), "u16": (0, 65535), "s16": (-32768, 32767)}


@pytest.mark.parametrize(
    "dtype", ["u8", "s16", *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("s8", "u16"))]
)
def test_a_quotient_is_rounded_before_its_zero_point_is_added(native: NativeRunner, dtype: str, isa: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    low, high = LIMITS[dtype]
    # Halves of whole numbers, which are rounded to even
    given = rng.integers(2 * low - 500, 2 * high + 500, DIMS) * 0.25
    attr = PrimitiveAttr((PostOp("eltwise", "round"),), (), (Quantisation(Arg.DST),))
    md = MemoryDesc(DIMS, "f32", "acdb")
    op = Binary(md, MemoryDesc((1, 1, 1, 1), "f32"), MemoryDesc(DIMS, dtype, "acdb"), "div")
    pd = primitive_desc(op, attr, target_of(isa))
    assert pd.impl_name() == "native:quantised_division"
    args: dict[int, Array] = {
        Arg.SRC: given, Arg.SRC_1: np.full((1, 1, 1, 1), 0.5), zero_points_of(Arg.DST): np.array([17])
    }  # fmt: skip
    np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], np.clip(np.rint(given / 0.5) + 17, low, high))


@pytest.mark.parametrize("dtype", ["u8", "s16"])
def test_a_quotient_near_halves_is_that_of_a_division(native: NativeRunner, dtype: str, isa: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    low, high = LIMITS[dtype]
    # Given numbers that are halves of a scale, or next to them, and special ones
    md, one = MemoryDesc((4000,), "f32"), MemoryDesc((1,), "f32")
    op, attr = Binary(md, one, MemoryDesc((4000,), dtype), "div"), PrimitiveAttr((PostOp("eltwise", "round"),))
    pd = primitive_desc(op, attr, target_of(isa))
    for scale in (*(rng.uniform(0.001, 3, 6) ** 2).astype(np.float32), np.float32(1e-30), np.float32(3e-40)):
        halves = ((rng.integers(low - 300, high + 300, 4000) + 0.5) * float(scale)).astype(np.float32)
        moved = np.nextafter(halves, np.float32(np.inf) * rng.choice([-1, 1], 4000).astype(np.float32))
        given = np.where(rng.integers(0, 2, 4000) == 0, halves, moved).astype(np.float32)
        given[:5] = np.inf, -np.inf, 3e38, -3e38, np.nan
        with np.errstate(over="ignore"):
            want = np.nan_to_num(np.clip(np.rint(given / scale), low, high), nan=low)
        # When they are divided and rounded
        got = native.results(pd, {Arg.SRC: given, Arg.SRC_1: np.array([scale])})[Arg.DST]
        # Then each is the rounded quotient
        np.testing.assert_array_equal(got, want, str(scale))


@pytest.mark.parametrize(
    ("dims", "tag", "scaled", "pointed"),
    [
        ((3, 5000), "", 0, 0), ((7, 33), "", 1, 1), ((7, 33), "", 2, 0), ((2, 19, 13, 11), "abcd", 2, 2),
        ((2, 19, 13, 11), "acdb", 2, 2), ((5, 3, 16), "", 3, 0), ((3, 4, 5, 21), "", 11, 11), ((2, 70, 33), "", 7, 7),
        ((5, 4), "", 0, 1), ((5, 0), "", 1, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["u8", "s8", "u16", "s16", "s32"])
@pytest.mark.one_in(3)
def test_integers_are_scaled_by_numbers_that_differ(
    native: NativeRunner, dims: tuple[int, ...], tag: str, scaled: int, pointed: int, dtype: str, isa: str
) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    low, high = LIMITS.get(dtype, (-(1 << 31), (1 << 31) - 1))

    def broadcast(mask: int) -> tuple[int, ...]:
        return tuple(size if mask >> dim & 1 else 1 for dim, size in enumerate(dims))

    given = rng.integers(low, high + 1, dims)
    scale = rng.uniform(0.01, 3.0, broadcast(scaled)).astype(np.float32)
    point = rng.integers(low, high + 1, broadcast(pointed))
    points = () if dtype == "s32" else (Quantisation(Arg.SRC, pointed),)
    attr = PrimitiveAttr((), (Quantisation(Arg.SRC, scaled),), points)
    pd = primitive_desc(Reorder(MemoryDesc(dims, dtype, tag), MemoryDesc(dims, "f32", tag)), attr, target_of(isa))
    assert pd.impl_name() == "native:dequantise" or (dtype in ("u8", "s8") and not scaled and not pointed)
    args: dict[int, Array] = {Arg.SRC: given, scales_of(Arg.SRC): scale.reshape(-1)}
    if points:
        args[zero_points_of(Arg.SRC)] = point.reshape(-1)
    # ONNX subtracts before it multiplies, each rounded once.
    want = (given - (point if points else 0)).astype(np.float32) * scale
    np.testing.assert_array_equal(native.results(pd, args)[Arg.DST], want)


@pytest.mark.parametrize(
    ("dims", "tag", "second"),
    [
        ((1, 19, 13, 11), "abcd", (1, 19, 1, 1)),
        ((1, 19, 13, 11), "acdb", (1, 19, 1, 1)),
        ((3, 5, 7, 2), "abcd", (1, 1, 1, 1)),
        ((3, 5, 70, 71), "abcd", (1, 1, 1, 1)),
        ((3, 19, 5, 4), "abcd", (1, 19, 1, 1)),
        ((3, 19, 5, 4), "abcd", (1, 19, 5, 4)),
        ((3, 19, 5, 4), "acdb", (1, 19, 5, 4)),
        ((3, 19, 5, 33), "abcd", (1, 19, 1, 33)),
        ((3, 19, 5, 33), "abcd", (3, 19, 1, 1)),
    ],
)
@pytest.mark.parametrize("algorithm", ["mul", "add"])
def test_a_sum_or_product_has_one_number_for_rows_or_lanes(
    native: NativeRunner, dims: tuple[int, ...], tag: str, second: tuple[int, ...], algorithm: str
) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    used = (Arg.SRC, Arg.SRC_1, Arg.DST)
    attr = PrimitiveAttr((), tuple(map(Quantisation, used)), tuple(map(Quantisation, used)))
    op = Binary(MemoryDesc(dims, "u8", tag), MemoryDesc(second, "s8", tag), MemoryDesc(dims, "u8", tag), algorithm)
    pd = primitive_desc(op, attr, cpu_target())
    assert pd.impl_name() == "native:quantised_binary"
    args: dict[int, Array] = {Arg.SRC: rng.integers(0, 256, dims), Arg.SRC_1: rng.integers(-128, 128, second)}
    for arg, scale, point in zip(used, (0.3, 0.2, 0.9), (100, -3, 50), strict=True):
        args[scales_of(arg)], args[zero_points_of(arg)] = np.array([scale], np.float32), np.array([point])
    got = native.results(pd, args)[Arg.DST].astype(np.float64)
    left, right = (args[Arg.SRC] - 100.0) * 0.3, (args[Arg.SRC_1] + 3.0) * 0.2
    value = (left * right if algorithm == "mul" else left + right) / 0.9 + 50
    near = np.abs(value - np.floor(value) - 0.5) < 1e-3
    assert np.array_equal(np.where(near, got, np.clip(np.rint(value), 0, 255)), got)


@pytest.mark.parametrize("dtype", ["u8", pytest.param("s8", marks=pytest.mark.slow)])
def test_a_function_of_bytes_is_that_of_their_numbers(native: NativeRunner, dtype: str, isa: str) -> None:
    low = 0 if dtype == "u8" else -128
    # Each number at each of 64 places, as many as are looked up at once, and some behind the last 64
    values = np.arange(257 * 64 + 13) % 257 % 256 + low
    md, used = MemoryDesc(values.shape, dtype), (Arg.SRC, Arg.DST)
    attr = PrimitiveAttr((), tuple(map(Quantisation, used)), tuple(map(Quantisation, used)))
    args: dict[int, Array] = {Arg.SRC: values}
    for arg, scale, point in zip(used, (0.05, 1 / 256), (low + 120, low), strict=True):
        args[scales_of(arg)], args[zero_points_of(arg)] = np.array([scale], np.float32), np.array([point])
    pd = primitive_desc(Eltwise(md, md, "logistic"), attr, target_of(isa))
    assert pd.impl_name() == "native:quantised_eltwise"
    got = native.results(pd, args)[Arg.DST].astype(np.float64)
    value = 256 / (1 + np.exp(-(values - low - 120.0) * float(np.float32(0.05)))) + low
    near = np.abs(value - np.floor(value) - 0.5) < 1e-3
    assert np.array_equal(np.where(near, got, np.clip(np.rint(value), low, low + 255)), got)


@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("channels", [pytest.param(3, marks=pytest.mark.slow), 97])
def test_the_maximum_of_bytes_is_exact(native: NativeRunner, dtype: str, channels: int, isa: str) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    low = 0 if dtype == "u8" else -128
    src = rng.integers(low, low + 256, (2, channels, 9, 8))
    op = Pooling(
        MemoryDesc(src.shape, dtype, "acdb"), MemoryDesc((2, channels, 5, 3), dtype, "any"), "max", (3, 2), (2, 3),
        (0, 1), (1, 1), (1, 1),
    )  # fmt: skip
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:pooling_bytes"
    got = native.results(pd, {Arg.SRC: src})[Arg.DST]
    np.testing.assert_array_equal(got, reference(op, PrimitiveAttr(), {Arg.SRC: src}))


@pytest.mark.parametrize("combined", ["", "add", pytest.param("mul", marks=pytest.mark.slow)])
@pytest.mark.parametrize("result", ["u8", pytest.param("s8", marks=pytest.mark.slow)])
def test_a_result_does_not_depend_on_the_vector_that_it_is_in(
    native: NativeRunner, result: str, combined: str, isa: str
) -> None:
    rng = np.random.default_rng(random.SystemRandom().randrange(1 << 32))
    # Given numbers of which most results are halves, and some are beyond the bounds
    kinds = ["f32", result] if not combined else ["u8", "s8", result]
    used = [Arg.SRC, Arg.SRC_1][: len(kinds) - 1]
    attr = PrimitiveAttr((), tuple(map(Quantisation, (*used, Arg.DST))), tuple(map(Quantisation, (*used, Arg.DST))))
    numbers = {arg: rng.integers(0, 128, 77) for arg in used}
    extra: dict[int, Array] = {}
    for arg in (*used, Arg.DST):
        extra[scales_of(arg)] = np.array([2.0 if arg == Arg.DST else 1.0], np.float32)
        extra[zero_points_of(arg)] = np.array([-3 if arg == Arg.DST else 20])

    def results(count: int, start: int) -> Array:
        mds = [MemoryDesc((count,), kind) for kind in kinds]
        op = Binary(mds[0], mds[1], mds[2], combined) if combined else Reorder(mds[0], mds[1])
        pd = primitive_desc(op, attr, target_of(isa))
        assert pd.impl_name().startswith("native:quantise")
        return native.results(pd, {**{arg: numbers[arg][start : start + count] for arg in used}, **extra})[Arg.DST]

    # When they are computed at once, and one by one: the whole vectors of the former are packed two at a time
    whole = results(77, 0)
    # Then nothing differs
    np.testing.assert_array_equal(whole, np.concatenate([results(1, at) for at in range(77)]))
