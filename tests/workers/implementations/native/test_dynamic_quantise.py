"""Quantisation by the range of a tensor on native kernels, bit for bit as in float32 and as ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poolrt.workers.desc import Arg, DynamicQuantise, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.references.dynamic_quantise import Array, dynamic_quantise
from tests.workers.native_runner import NativeRunner

SIZES = (0, 1, 15, 16, 33, 4097, 16384, 40000)


def check(native: NativeRunner, given: Array, tag: str = "") -> None:
    kind = ("u8", "s32")[given.size % 2]
    src, scalar = MemoryDesc(given.shape, "f32", tag), MemoryDesc((), "f32")
    op = DynamicQuantise(src, MemoryDesc(given.shape, "u8", tag), scalar, MemoryDesc((), kind))
    pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
    assert pd.impl_name() == "native:dynamic_quantise"
    got = native.results(pd, {Arg.SRC: given})
    stored, scale, point = dynamic_quantise(given)
    np.testing.assert_array_equal(got[Arg.DST_1], scale.astype(np.float32), str(given.shape))
    np.testing.assert_array_equal(got[Arg.DST_2], point, str(given.shape))
    np.testing.assert_array_equal(got[Arg.DST], stored, str(given.shape))


@pytest.mark.parametrize("size", SIZES)
def test_ranges_of_every_size_and_sign_give_the_bytes_of_float32(native: NativeRunner, size: int) -> None:
    rng = np.random.default_rng()
    for scale, shift in itertools.product((1e-42, 1e-30, 1.0, 1e30), (-3.0, 0.0, 3.0)):
        check(native, ((rng.standard_normal(size) + shift) * scale).astype(np.float32))
    check(native, np.zeros(size, np.float32))
    # Halves between two steps.
    check(native, (rng.integers(-255, 256, size) / 2).astype(np.float32))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0, 3.4e38, -3.4e38, 1e-45])
def test_a_special_number_anywhere_counts(native: NativeRunner, special: float) -> None:
    rng = np.random.default_rng()
    for size in SIZES[1:]:
        for place in {0, size // 2, size - 1}:
            given = rng.standard_normal(size).astype(np.float32)
            given[place] = special
            check(native, given)
        check(native, np.full(size, special, np.float32))


def test_both_infinities_and_nan_beside_them(native: NativeRunner) -> None:
    for numbers in ([np.inf, -np.inf, 1.0], [np.nan, np.inf, 2.0], [-np.inf, np.nan], [3.4e38, -3.4e38, 0.5]):
        check(native, np.array(numbers * 11, np.float32))


def test_layouts_of_any_order_are_computed_as_they_are(native: NativeRunner) -> None:
    check(native, np.random.default_rng().standard_normal((3, 5, 7)).astype(np.float32), "cab")
