"""Emulated instructions compute what the manual defines and, on a processor that has them, what it does."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llvmlite.ir as ir
import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.kernels.native import bfloat_product, vec
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import compile_code, lower_function
from poolrt.workers.kernels.native.compiler.language import intrinsic
from tests.references import numpy_type
from tests.workers.levels import EVERYTHING

from . import emulated_instructions
from .emulated_instructions import emulated
from .lacking_instructions import had, real_flags

Array = NDArray[Any]
INT = types.int64
BYTES, WORDS, LONGS = ir.VectorType(vec.I8, 64), ir.VectorType(vec.I16, 32), ir.VectorType(vec.I64, 8)
BFLOATS = ir.VectorType(bfloat_product._BFloat(), 32)
#: Numbers of float32 beside those drawn: zeros, the ends of all ranges, infinities, NaN.
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.5, 1e-45, -1e-40, 1.17549435e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan], np.float32
)


def computed(
    flag: str, name: str, dtype: Any, given: Sequence[tuple[ir.Type, Array]], result: ir.Type, *constants: ir.Constant,
    instructions: str = EVERYTHING,
) -> Array:  # fmt: skip
    """Return rows of what an instruction's function makes of rows of 64 bytes; the same as the instruction, if there is one.

    ``instructions`` have it. Zeros are behind shorter results.
    """

    @intrinsic
    def compute(_: Any, first: Any, second: Any, third: Any, to: Any) -> Any:
        def emit(context: Any, b: vec.Builder, sig: Any, a: list[vec.Value]) -> vec.Value:
            operands = []
            for at, (kind, _) in zip(a, given, strict=False):
                stored = WORDS if kind == BFLOATS else kind
                value = b.load(vec.pointer(b, at, stored), align=1)
                operands.append(value if kind == stored else b.bitcast(value, kind))
            found = vec.call(b, name, *operands, *constants, result=result)
            b.store(found, vec.pointer(b, a[3], result), align=1)
            return context.get_dummy_value()

        return types.void(INT, INT, INT, INT), emit

    def kernel(begin: int, end: int, first: int, second: int, third: int, to: int) -> None:
        for item in range(begin, end):
            at = item * 64
            compute(first + at, second + at, third + at, to + at)

    code = lower_function(name, kernel, types.void(*[INT] * 6), instructions)
    level, *extensions = had(instructions)
    binaries = [compile_code(name, emulated(code, frozenset()), level)]
    if flag in real_flags():
        binaries.append(compile_code(name, code, "+".join((level, *extensions))))
    arrays = [array for _, array in given]
    rows = len(arrays[0])
    found = np.zeros((len(binaries), rows, 64 // np.dtype(dtype).itemsize), dtype)
    for binary, to in zip(binaries, found, strict=True):
        addresses = [array.ctypes.data for array in (*arrays, *arrays, *arrays)][:3]
        blob, ends = (ctypes.c_int64 * 6)(0, rows, *addresses, to.ctypes.data), (ctypes.c_int64 * 8)()
        start = ctypes.addressof(ends)
        assert load_object(binary).function(start, start + 32, ctypes.addressof(blob)) == 0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    return found[0]


def whole_numbers(dtype: Any, rows: int = 64) -> Array:
    """Return rows of 64 bytes of numbers from a whole range, its ends in the first rows."""
    info, rng = np.iinfo(dtype), np.random.default_rng()
    found = rng.integers(info.min, info.max, (rows, 64 // info.dtype.itemsize), dtype, endpoint=True)
    found[:2], found[2::16] = info.min, info.max
    return found


def floats(least: float, most: float, rows: int = 64) -> Array:
    """Return rows of 16 float32 of every size between two powers of two, and special ones."""
    rng = np.random.default_rng()
    found = rng.uniform(-2.0, 2.0, (rows, 16)) * 2.0 ** rng.uniform(least, most, (rows, 16))
    found.ravel()[: 8 * SPECIAL.size] = rng.choice(SPECIAL, 8 * SPECIAL.size)
    return found.astype(np.float32)


def test_each_instruction_of_avx512_that_kernels_name_has_a_function() -> None:
    """A host with the instruction never misses its function."""
    sources = Path(vec.__file__).parent.rglob("*.py")
    named = {name for path in sources for name in re.findall(r"llvm\.x86\.avx512[\w.]*", path.read_text("utf-8"))}
    known = emulated_instructions._FUNCTIONS
    # A name whose end depends on the width ends with a dot.
    assert {name for name in named if not any(other in (name, f"{name}256", f"{name}512") for other in known)} == set()
    assert len(named) > 8


@pytest.mark.parametrize("flags", [frozenset(), real_flags()], ids=["AVX2", "this host"])
def test_what_hides_vectors_from_llvm_is_left_out_where_no_register_has_them(flags: frozenset[str]) -> None:
    @intrinsic
    def add_hidden(_: Any, first: Any, second: Any) -> Any:
        def emit(context: Any, b: vec.Builder, sig: Any, a: list[vec.Value]) -> vec.Value:
            value = b.load(vec.pointer(b, a[0], vec.VF), align=1)
            hidden = b.asm(ir.FunctionType(vec.VF, [vec.VF]), "", "=v,0", [vec.constant(2.0)], False)
            kind, both = ir.FunctionType(vec.I64, [vec.I64, vec.VF, vec.VF]), [value, hidden]
            to = b.asm(kind, "", "=r,0,v,v,~{memory}", [a[1], *both], True)
            b.store(b.fadd(*both), vec.pointer(b, to, vec.VF), align=1)
            return context.get_dummy_value()

        return types.void(INT, INT), emit

    def kernel(begin: int, end: int, first: int, to: int) -> None:
        for item in range(begin, end):
            add_hidden(first + item * 64, to + item * 64)

    level = "x86-64-v4"
    code = lower_function("hidden", kernel, types.void(*[INT] * 4), level)
    assert len(re.findall(r'asm .*"=[vr],0', code)) == 2
    built = compile_code("hidden", emulated(code, flags), had(level)[0])
    given, found = floats(-9, 9), np.zeros((64, 16), np.float32)
    blob, ends = (ctypes.c_int64 * 4)(0, 64, given.ctypes.data, found.ctypes.data), (ctypes.c_int64 * 8)()
    start = ctypes.addressof(ends)
    assert load_object(built).function(start, start + 32, ctypes.addressof(blob)) == 0
    np.testing.assert_array_equal(found, given + np.float32(2.0))


def test_assembly_in_vectors_that_has_no_other_form_is_named() -> None:
    with pytest.raises(NotImplementedError, match="vaddps"):
        emulated('  %x = call <16 x float> asm "vaddps $1, $1, $0", "=v,v"(<16 x float> %y)\n', frozenset())


def test_lanes_are_permuted_by_the_lowest_four_bits() -> None:
    values, numbers = floats(-9, 9), whole_numbers(np.int32)
    found = computed(
        "avx512f", "llvm.x86.avx512.permvar.sf.512", np.float32, [(vec.VF, values), (vec.VI, numbers)], vec.VF
    )
    np.testing.assert_array_equal(found, np.take_along_axis(values, numbers & 15, 1))


def test_lanes_of_two_vectors_of_words_are_permuted_by_the_lowest_six_bits() -> None:
    low, numbers, high = (whole_numbers(np.int16) for _ in range(3))
    given = [(WORDS, low), (WORDS, numbers), (WORDS, high)]
    found = computed("avx512bw", "llvm.x86.avx512.vpermi2var.hi.512", np.int16, given, WORDS)
    np.testing.assert_array_equal(found, np.take_along_axis(np.concatenate((low, high), 1), numbers & 63, 1))


def test_pairs_of_16_bits_are_multiplied_and_added() -> None:
    left, right = whole_numbers(np.int16), whole_numbers(np.int16)
    found = computed("avx512bw", "llvm.x86.avx512.pmaddw.d.512", np.int32, [(WORDS, left), (WORDS, right)], vec.VI)
    exact = (left.astype(np.int64) * right).reshape(len(left), 16, 2).sum(-1)
    np.testing.assert_array_equal(found, exact.astype(np.int32))


def test_four_bytes_are_multiplied_and_added_to_a_sum() -> None:
    total, left, right = whole_numbers(np.int32), whole_numbers(np.uint8), whole_numbers(np.int8)
    given = [(vec.VI, total), (BYTES, left), (BYTES, right)]
    found = computed("avx512_vnni", "llvm.x86.avx512.vpdpbusd.512", np.int32, given, vec.VI)
    exact = total + (left.astype(np.int64) * right).reshape(len(left), 16, 4).sum(-1)
    np.testing.assert_array_equal(found, exact.astype(np.int32))


def test_four_bytes_are_multiplied_and_added_to_a_sum_in_vectors_of_256_bits() -> None:
    total, left, right = whole_numbers(np.int32), whole_numbers(np.uint8), whole_numbers(np.int8)
    sums, halves = ir.VectorType(vec.I32, 8), ir.VectorType(vec.I8, 32)
    given = [(sums, total), (halves, left), (halves, right)]
    name, instructions = "llvm.x86.avx512.vpdpbusd.256", "x86-64-v3+avx_vnni"
    found = computed("avx_vnni", name, np.int32, given, sums, instructions=instructions)
    exact = total + (left.astype(np.int64) * right).reshape(len(left), 16, 4).sum(-1)
    np.testing.assert_array_equal(found[:, :8], exact.astype(np.int32)[:, :8])


@pytest.mark.parametrize(
    ("name", "given", "dtype"),
    [("packssdw", np.int32, np.int16), ("packsswb", np.int16, np.int8), ("packuswb", np.int16, np.uint8)],
)
def test_numbers_are_packed_to_the_closest_of_half_the_bits(name: str, given: Any, dtype: Any) -> None:
    left, right = whole_numbers(given), whole_numbers(given)
    info = np.iinfo(dtype)
    # Most numbers of a whole range are beyond the ends of a smaller one.
    for array in (left, right):
        array[8:] >>= info.bits - 2
    wide = vec.VI if given == np.int32 else WORDS
    narrow = WORDS if dtype == np.int16 else BYTES
    found = computed("avx512bw", f"llvm.x86.avx512.{name}.512", dtype, [(wide, left), (wide, right)], narrow)
    parts = [array.reshape(len(array), 4, 1, -1) for array in (left, right)]
    exact = np.concatenate(parts, 2).reshape(found.shape).clip(info.min, info.max)
    np.testing.assert_array_equal(found, exact.astype(dtype))


def test_differences_of_eight_bytes_are_added_up() -> None:
    left, right = whole_numbers(np.uint8), whole_numbers(np.uint8)
    found = computed("avx512bw", "llvm.x86.avx512.psad.bw.512", np.int64, [(BYTES, left), (BYTES, right)], LONGS)
    exact = np.abs(left.astype(np.int64) - right).reshape(len(left), 8, 8).sum(-1)
    np.testing.assert_array_equal(found, exact)


def test_numbers_are_scaled_by_powers_of_two_and_rounded_once() -> None:
    values, powers = floats(-149, 127), floats(-3, 9)
    # Each of the special numbers to the power of each, and a signalling NaN.
    odd = np.append(SPECIAL, np.array([0x7FA00000], np.uint32).view(np.float32))
    values.ravel()[: odd.size**2], powers.ravel()[: odd.size**2] = np.repeat(odd, odd.size), np.tile(odd, odd.size)
    quiet = values.view(np.uint32) & 0x7FFFFFFF >= 0x7FC00000
    constants = vec.constant(0.0), vec.I16(-1), vec.I32(4)
    given = [(vec.VF, values), (vec.VF, powers)]
    found = computed("avx512f", "llvm.x86.avx512.mask.scalef.ps.512", np.float32, given, vec.VF, *constants)
    with np.errstate(invalid="ignore", over="ignore"):
        # A power beyond these has no other result, but that an infinite one is the factor 0 or infinity.
        exact = values.astype(np.float64) * 2.0 ** np.floor(np.clip(powers, -900, 900).astype(np.float64))
        factor = np.where(powers > 0, np.inf, 0.0)
        exact = np.where(np.isinf(powers), np.where(quiet, factor, values * factor), exact)
        np.testing.assert_array_equal(found, exact.astype(np.float32))


def test_pairs_of_bf16_are_added_by_fused_steps_without_denormal_numbers() -> None:
    bf16 = numpy_type("bf16")
    total, left, right = (
        floats(-140, 20),
        *(np.stack([floats(-70, 30), floats(-70, 30)], -1).reshape(64, 32).astype(bf16) for _ in range(2)),
    )
    given = [(vec.VF, total), (BFLOATS, left), (BFLOATS, right)]
    found = computed("avx512_bf16", "llvm.x86.avx512bf16.dpbf16ps.512", np.float32, given, vec.VF)

    def flushed(x: Array) -> Array:
        return np.where(np.abs(x) < 2.0**-126, np.copysign(0.0, x), x)

    exact = flushed(total.astype(np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        for place in (1, 0):
            one, other = (flushed(x[:, place::2].astype(np.float64)) for x in (left, right))
            # The product is exact in float64; the sum, rounded there, is the same when it is rounded again.
            exact = flushed((one * other + exact).astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(found, exact.astype(np.float32))


def test_an_instruction_without_a_function_is_refused_with_its_name() -> None:
    code = 'declare void @"llvm.x86.avx512.conflict.d.512"()\n'
    with pytest.raises(NotImplementedError, match=r"llvm\.x86\.avx512\.conflict\.d\.512"):
        emulated(code, real_flags())
