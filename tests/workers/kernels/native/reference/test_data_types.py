"""Elements of every type read and written by reference kernels, against NumPy's own conversions."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.kernels.codes import DATA_TYPES
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_function
from poolrt.workers.kernels.native.reference.data_types import load, move, store
from tests.references.data_types import converted, numpy_type, rounded

Array = NDArray[Any]
SIGNATURE = types.void(*[types.int64] * 8)


def convert(
    begin: int, end: int, src: int, src_code: int, src_step: int, dst: int, dst_code: int, dst_step: int
) -> None:
    for i in range(begin, end):
        store(dst + i * dst_step, dst_code, load(src + i * src_step, src_code))


def copy(begin: int, end: int, src: int, src_code: int, src_step: int, dst: int, dst_code: int, dst_step: int) -> None:
    for i in range(begin, end):
        move(src + i * src_step, src_code, dst + i * dst_step, dst_code)


@pytest.fixture(scope="module")
def kernels() -> dict[str, NativeKernel]:
    functions: tuple[Callable[..., None], ...] = (convert, copy)
    return {f.__name__: load_object(compile_function(f.__name__, f, SIGNATURE, "x86-64-v2")) for f in functions}


def run(kernel: NativeKernel, values: Array, source: str, target: str) -> Array:
    out = np.zeros(values.size, numpy_type(target))
    sides = [(a.ctypes.data, DATA_TYPES[dtype], a.itemsize) for a, dtype in ((values, source), (out, target))]
    blob = (ctypes.c_int64 * 8)(0, values.size, *sides[0], *sides[1])
    result = (ctypes.c_int64 * 8)()
    start = ctypes.addressof(result)
    assert kernel.function(start, start + 32, ctypes.addressof(blob)) == 0
    return out


def interesting() -> Array:
    """Return float64 values near every boundary: ties, limits of integers, subnormal and largest numbers, special ones."""
    powers = np.ldexp(1.0, np.arange(-160, 140))
    # Halfway between neighbours of f16 and of bf16, and a little to either side.
    fractions = np.array([k * 2.0**-12 for k in (0, 1, 2, 3, 6)] + [k * 2.0**-9 for k in (1, 2, 3, 7, 1021 / 2)])
    near = np.concatenate([fractions, fractions + 2.0**-40, fractions - 2.0**-40])
    limits = [s * 2.0**b + d for b in (7, 8, 31, 32, 63) for s in (-1, 1) for d in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    special = [0.0, -0.0, 0.5, 1.5, 2.5, 65519.0, 65520.0, 1e300, 5e-324, 3.4e38, math.inf, math.nan]
    positive = np.concatenate([np.outer(powers, 1 + near).ravel(), limits, special])
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("target", DATA_TYPES)
def test_a_float64_is_rounded_once(kernels: dict[str, NativeKernel], target: str) -> None:
    values = interesting()
    got, wanted = run(kernels["convert"], values, "f64", target), converted(values, target)
    np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))
    if target in ("f32", "f16", "bf16"):
        assert (np.signbit(got) == np.signbit(values))[~np.isnan(values)].all()


@pytest.mark.parametrize("source", ["f16", "bf16", "s8", "u8", "bool"])
def test_every_value_of_a_small_type_is_read_exactly(kernels: dict[str, NativeKernel], source: str) -> None:
    size = numpy_type(source).itemsize
    every = np.arange(1 << 8 * size, dtype=np.uint32).astype(f"u{size}")
    if source == "bool":
        every = every[:2]
    values = every.view(numpy_type(source))
    got = run(kernels["convert"], values, source, "f64")
    with np.errstate(invalid="ignore"):  # signalling NaN
        np.testing.assert_array_equal(got, values.astype(np.float64))
    # And back again, NaN apart, whose payload a conversion may make quiet.
    again = run(kernels["convert"], got, "f64", source).view(f"u{size}")
    assert (again == every)[~np.isnan(got)].all()
    assert np.isnan(again.view(numpy_type(source))[np.isnan(got)].astype(np.float64)).all()


@pytest.mark.parametrize(("source", "target"), list(itertools.product(("f32", "s32", "s64", "f16"), DATA_TYPES)))
@pytest.mark.one_in(4)
def test_types_convert_into_one_another(kernels: dict[str, NativeKernel], source: str, target: str) -> None:
    values = converted(interesting(), source)
    got = run(kernels["copy"], values, source, target)
    wanted = rounded(values.astype(np.float64), target)
    if source == target:
        assert got.tobytes() == values.tobytes()
    elif target == "s64":
        assert (got == converted(values.astype(np.float64), "s64")).all()
    else:
        np.testing.assert_array_equal(got.astype(np.float64), wanted)


def test_a_copy_keeps_every_bit_of_a_large_integer(kernels: dict[str, NativeKernel]) -> None:
    values = np.array([2**53 + 1, -(2**62) - 3], np.int64)
    assert run(kernels["copy"], values, "s64", "s64").tolist() == values.tolist()
