"""Fourier transforms on native kernels: lengths of small factors, axes of any stride, cut and lengthened signals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Dft, MemoryDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.native.dft import find_factors
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references import numpy_type
from tests.references.dft import dft
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner

#: Errors by the greatest result, of lengths up to a few thousand.
TOLERANCE = {"f32": 5e-7, "f64": 2e-15}
#: Each radix, first and behind others, with and without a factor 2; whole vectors of numbers and some left.
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 14, 26, 33, 49, 60, 121, 169, 210, 256, 450, 1001, 1024, 2048)


def check(native: NativeRunner, op: Dft, isa: str) -> np.ndarray[Any, Any]:
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa))
    assert pd.impl_name() == "native:dft"
    given = np.random.default_rng().standard_normal(op.src.dims).astype(numpy_type(op.src.dtype))
    got, wanted = native.results(pd, {Arg.SRC: given})[Arg.DST], dft(op, given)
    error = np.abs(got - wanted).max(initial=0.0)
    assert error <= TOLERANCE[op.dst.dtype] * np.abs(wanted).max(initial=1e-30), f"{op}: {error}"
    return got


def described(
    dims: tuple[int, ...], axis: int, length: int, inverse: bool, half: bool, dtype: str, tag: Any = ""
) -> Dft:
    made = Dft.result_dims(dims, axis, length, inverse, half)
    return Dft(MemoryDesc(dims, dtype, tag), MemoryDesc(made, dtype), axis, length, inverse, half)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_transforms_of_every_radix_both_ways(native: NativeRunner, isa: str, dtype: str) -> None:
    for number, length in enumerate(LENGTHS):
        inverse, half, parts = bool(number & 1), number % 3 == 0, 1 + (number // 2) % 2
        check(native, described((5, length, parts), 1, length, inverse, half, dtype), isa)
        check(native, described((5, length, 2), 1, length, not inverse, False, dtype), isa)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_signals_of_any_stride_are_cut_and_lengthened(native: NativeRunner, isa: str, dtype: str) -> None:
    for number in range(16):
        inverse, half, parts = bool(number & 1), bool(number & 2), 1 + (number >> 2) % 2
        for length in (9, 20, 40):
            check(native, described((3, 20, 7, parts), 1, length, inverse, half, dtype), isa)
            check(
                native, described((20, 9, parts), 0, length, inverse, half, dtype, ((2, 50, 1), "cab")[number % 2]), isa
            )


def test_more_signals_than_items_hold(native: NativeRunner) -> None:
    check(native, described((7, 6, 77, 2), 1, 6, False, False, "f32"), "x86-64-v3")
    assert check(native, described((0, 6, 2), 1, 6, False, False, "f32"), "x86-64-v3").shape == (0, 6, 2)


def test_the_halves_of_a_real_signals_spectrum_are_conjugate_to_the_last_bit(native: NativeRunner) -> None:
    for length in (1, 2, 10, 15, 64):
        for inverse in (False, True):
            got = check(native, described((3, length, 1), 1, length, inverse, False, "f32"), "x86-64-v3")
            behind = got[:, -np.arange(length) % length]
            np.testing.assert_array_equal(got[..., 0], behind[..., 0])
            np.testing.assert_array_equal(got[..., 1], -behind[..., 1])


def test_lengths_are_divided_into_small_factors() -> None:
    lengths = (1, 10, 60, 64, 128, 1000, 1001, 17, 34, 1 << 16, 1 << 17)
    assert {n: find_factors(n) for n in lengths} == {
        1: (), 10: (2, 5), 60: (4, 3, 5), 64: (4, 4, 4), 128: (2, 4, 4, 4), 1000: (2, 4, 5, 5, 5), 1001: (7, 11, 13),
        17: None, 34: None, 1 << 16: (4,) * 8, 1 << 17: None,
    }  # fmt: skip


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    for length, dtype, reason in ((17, "f32", "length 17"), (16, "f16", "data types f16 and f16")):
        with pytest.raises(UnsupportedPrimitive, match=reason):
            op = described((2, length, 2), 1, length, False, False, dtype)
            primitive_desc(op, PrimitiveAttr(), cpu_target(), references=False)


def test_descriptors_of_other_shapes_are_refused() -> None:
    src = MemoryDesc((2, 8, 2), "f32")
    for made, axis, length, reason in (
        ((2, 8, 1), 1, 8, "dst: expect"), ((2, 8, 2), 2, 8, "axis: expect"), ((2, 0, 2), 1, 0, "length: expect"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            Dft(src, MemoryDesc(made, "f32"), axis, length)
