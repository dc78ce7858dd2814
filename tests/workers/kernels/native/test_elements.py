"""Elements of every data type are read exactly and rounded once, at every ISA level; nothing behind a part is written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.engines.object_loader import NativeKernel, load_object
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.elements import elements
from poolrt.workers.kernels.native.exponentials import vexp, vlog
from poolrt.workers.kernels.native.movement import Movement
from poolrt.workers.kernels.native.transpose import transposes
from tests.references.data_types import converted, numpy_type

from .lacking_instructions import function_for_this_host

INT = types.int64
#: The types whose conversions are the hardest; the thorough tier has all.
TYPES = (
    "f16",
    "bf16",
    "s64",
    "u8",
    *(pytest.param(t, marks=pytest.mark.slow) for t in ("f64", "f32", "s32", "s8", "bool")),
)


def run(isa: str, kernel: Callable[..., None], *arguments: int) -> None:
    """Call ``kernel(begin, end, ...)`` once."""
    call(
        load_object(function_for_this_host("kernel", kernel, types.void(*[INT] * (2 + len(arguments))), isa)),
        *arguments,
    )


def call(loaded: NativeKernel, *arguments: int) -> None:
    """Call a kernel once."""
    blob = (ctypes.c_int64 * (2 + len(arguments)))(0, 1, *arguments)
    ret, exc = ctypes.c_int64(), ctypes.c_void_p()
    assert loaded.function(ctypes.addressof(ret), ctypes.addressof(exc), ctypes.addressof(blob)) == 0


def numbers(dtype: str) -> NDArray[np.float64]:
    """Return float64 numbers near all that a data type rounds to, ties and what is next to them, and special ones."""
    rng = np.random.default_rng()
    limits = [
        0.0,
        -0.0,
        0.5,
        1.5,
        2.5,
        -0.5,
        np.nan,
        np.inf,
        -np.inf,
        65519.99,
        65520.0,
        3.4e38,
        1e300,
        2.0**31,
        2.0**63,
    ]
    limits += [
        127.5,
        128.5,
        254.5,
        255.5,
        -128.5,
        -(2.0**31),
        -(2.0**63),
        2.0**-24,
        2.0**-25,
        2.0**-133,
        2.0**-134,
        5e-324,
    ]
    whole = rng.integers(-(2**16), 2**16, 4096) / 2.0
    wide = rng.standard_normal(4096) * 2.0 ** rng.integers(-150, 140, 4096)
    if dtype in ("f16", "bf16"):
        # Halfway between neighbours: a first rounding to float32 must not make a tie of what is none
        bits = rng.integers(0, 2**15 - 2**7 if dtype == "bf16" else 31 << 10, 4096).astype(np.uint16)
        near, beyond = (as_float64(pattern, dtype) for pattern in (bits, bits + np.uint16(1)))
        ties = np.where(np.isfinite(beyond), (near + beyond) / 2, near)
        wide = np.concatenate([wide, near, ties, ties * (1 + 2.0**-50), ties * (1 - 2.0**-50)])
    found = np.concatenate([limits, -np.array(limits), whole, wide])
    return np.resize(found, -(-found.size // 16) * 16)


def as_float64(bits: NDArray[np.uint16], dtype: str) -> NDArray[np.float64]:
    """Return the values of the bits of f16 or bf16."""
    found = bits.view(np.float16) if dtype == "f16" else (bits.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return found.astype(np.float64)


def moved(isa: str, source: str, target: str, stored: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return elements of one type as those of another."""
    movement = Movement(source, target)
    move, src_size, dst_size = movement.intrinsics()[0], movement.src_size, movement.dst_size

    def kernel(begin: int, end: int, src: int, dst: int, count: int) -> None:
        for index in range(count):
            move(src + 16 * src_size * index, dst + 16 * dst_size * index)

    found = np.zeros(stored.size, numpy_type(target))
    run(isa, kernel, stored.ctypes.data, found.ctypes.data, stored.size // 16)
    return found


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_rounded_once(isa: str, dtype: str) -> None:
    # Given numbers of float64, of which many are ties
    values = numbers(dtype)
    # When they are converted, then they are what NumPy rounds them to
    got, wanted = moved(isa, "f64", dtype, values), converted(values, dtype)
    is_nan = np.isnan(values)
    assert got[~is_nan].tobytes() == wanted[~is_nan].tobytes()
    if dtype in ("f64", "f32", "f16", "bf16"):
        assert np.isnan(unrounded(got[is_nan], dtype)).all()
    else:
        least = 1 if dtype == "bool" else np.iinfo(numpy_type(dtype)).min
        assert got[is_nan].tolist() == [least] * int(is_nan.sum())


@pytest.mark.parametrize("dtype", TYPES)
def test_every_number_is_read_exactly(isa: str, dtype: str) -> None:
    # Given all bits that a small type has, or numbers of a large one
    if numpy_type(dtype).itemsize <= 2:
        count = 1 << 8 * numpy_type(dtype).itemsize
        stored = np.arange(count, dtype=f"u{numpy_type(dtype).itemsize}").view(numpy_type(dtype))
    else:
        stored = converted(numbers(dtype), dtype)
    # When they are read as float64, then they are the same; NaN stays NaN
    np.testing.assert_array_equal(moved(isa, dtype, "f64", stored), unrounded(stored, dtype))


def unrounded(stored: NDArray[np.generic], dtype: str) -> NDArray[np.float64]:
    """Return the values of elements."""
    if dtype in ("f16", "bf16"):
        return as_float64(stored.view(np.uint16), dtype)
    return (stored.view(np.uint8) != 0).astype(np.float64) if dtype == "bool" else stored.astype(np.float64)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_part_writes_nothing_behind_it(isa: str, dtype: str) -> None:
    of = elements(dtype)
    load_part, store_part = of.load_part, of.store_part

    def kernel(begin: int, end: int, src: int, dst: int, count: int) -> None:
        store_part(dst, load_part(src, count), count)

    loaded = load_object(function_for_this_host("kernel", kernel, types.void(*[INT] * 5), isa))
    values = converted(np.arange(1.0, 33.0), dtype)
    for count in range(17):
        found = np.zeros_like(values)
        call(loaded, values.ctypes.data, found.ctypes.data, count)
        assert found.tobytes() == values[:count].tobytes() + bytes((32 - count) * values.itemsize)


@pytest.mark.parametrize(
    ("source", "target"), [("bits8", "bits8"), ("bits64", "bits64"), ("f32", "bf16"), ("u8", "f32")]
)
def test_16_rows_become_16_columns(isa: str, source: str, target: str) -> None:
    types = {"bits8": "u8", "bits64": "s64"}
    given, wanted = (types.get(name, name) for name in (source, target))
    transpose, part, pad = transposes(Movement(source, target))

    def kernel(begin: int, end: int, src: int, row: int, whole: int, column: int, cut: int, padded: int) -> None:
        transpose(src, row, whole, column)
        part(src, row, cut, column, 5)
        pad(src, row, padded, column, 3, 5)

    matrix = converted(np.random.default_rng(1).integers(0, 200, (16, 20)), given)
    found = np.zeros((3, 16, 18), numpy_type(wanted))
    places = [found[number].ctypes.data for number in range(3)]
    run(isa, kernel, matrix.ctypes.data, 20 * matrix.itemsize, places[0], 18 * found.itemsize, *places[1:])
    turned = converted(unrounded(matrix, given), wanted).T[:16]
    expected = np.zeros_like(found)
    expected[0, :, :16] = turned
    expected[1, :5, :16] = turned[:5]
    expected[2, :5, :3] = turned[:5, :3]
    assert found.tobytes() == expected.tobytes()


def test_exponentials_and_logarithms_of_float64(isa: str) -> None:
    of = elements("f64")
    load, store = of.load, of.store

    def kernel(begin: int, end: int, src: int, exps: int, logs: int, count: int) -> None:
        for at in range(0, 8 * count, 128):
            store(exps + at, vexp(load(src + at)))
            store(logs + at, vlog(load(src + at)))

    # Given numbers of all sizes, and special ones
    rng = np.random.default_rng()
    spread = rng.standard_normal(4080) * 10.0 ** rng.integers(-320, 4, 4080)
    special = [
        0.0,
        -0.0,
        1.0,
        np.inf,
        -np.inf,
        np.nan,
        709.7,
        710.0,
        -745.0,
        -746.0,
        5e-324,
        1e308,
        -1e308,
        1e-310,
        -1.0,
        2.0,
    ]
    values = np.concatenate([spread, np.abs(spread), special])
    exps, logs = np.zeros_like(values), np.zeros_like(values)
    run(isa, kernel, values.ctypes.data, exps.ctypes.data, logs.ctypes.data, values.size)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(exps, np.exp(values), rtol=1e-15, atol=5e-324)
        np.testing.assert_allclose(logs, np.log(values), rtol=1e-15)
