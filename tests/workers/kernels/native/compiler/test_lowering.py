"""Kernels compute what Python computes of the same functions, and what is not in their language is refused with its place."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.workers.engines.object_loader import load_object
from poolrt.workers.kernels.native.compiler import types
from poolrt.workers.kernels.native.compiler.codegen import CompileError, compile_function
from poolrt.workers.kernels.native.compiler.language import inlined, not_inlined
from poolrt.workers.kernels.native.reference.scalars import write_64, write_f64

Number = int | float
_INT64 = st.integers(-(2**63), 2**63 - 1)
_SMALL = st.integers(-(2**20), 2**20)
_NUMBERS = st.one_of(_SMALL, st.integers(-3, 3))
_FLOATS = st.floats(-(2.0**40), 2.0**40)
_FACTOR = 3


def compiled(
    function: Callable[..., Any], *kinds: types.Type, result: types.Type = types.int64
) -> Callable[..., Number]:
    """Return a function of numbers, compiled."""
    write = write_64 if result == types.int64 else write_f64

    def of_one(begin: int, end: int, out: int, x: Any) -> None:
        write(out, function(x))

    def of_two(begin: int, end: int, out: int, x: Any, y: Any) -> None:
        write(out, function(x, y))

    entry: Callable[..., None] = of_one if len(kinds) == 1 else of_two
    signature = types.void(types.int64, types.int64, types.int64, *kinds)
    kernel = load_object(compile_function(function.__name__, entry, signature, "x86-64-v2"))

    def call(*arguments: Number) -> Number:
        found = (ctypes.c_int64 if result == types.int64 else ctypes.c_double)()
        packed = struct.pack(
            f"3q{''.join('q' if kind == types.int64 else 'd' for kind in kinds)}",
            0, 1, ctypes.addressof(found), *arguments,
        )  # fmt: skip
        blob, room = ctypes.create_string_buffer(packed), (ctypes.c_int64 * 2)()
        start = ctypes.addressof(room)
        assert kernel.function(start, start + 8, ctypes.addressof(blob)) == 0
        return found.value

    return call


def quotients(x: int, y: int) -> int:
    return x // y * 7 + x % y + x // 3 - x % 3 + (x // 16) * 5 + x % 16 + x // -5


def bits(x: int, y: int) -> int:
    return ((x << 3) ^ (y >> 2)) | (x & ~y) + (-x & 255) + abs(y) + int(x < y) + (x > 0) + (not y)


def extremes(x: int, y: int) -> int:
    return min(x, y, 5) * 3 + max(x, -y) + min(max(x, 0), 9)


def choices(x: int, y: int) -> int:
    if (x > 0 and y % (x + 1) < 2) or not y:
        found = 1
    elif 0 <= x < y <= 100 or x in (3, y, -7):
        found = 2
    else:
        found = x if y else -1
    less = found
    less -= 1 if x & 1 else 2
    return found * 10 + less


def searched(x: int, y: int) -> int:
    total = place = 0
    for i in range(min(abs(x), 50)):
        if i % 3 == 1:
            continue
        for j in range(9, -1, -2):
            if i * j > abs(y) % 40:
                break
            total += i * j
        i += 5
        total += i
    while True:
        place += 1
        if place * place > abs(y) % 1000:
            break
        if place > 20:
            return -place
    while place > 3:
        place -= 2
    for k in range(0, 20, 1 + abs(x) % 4):
        total += k
    return total * 100 + place


def pair(x: int, y: int) -> tuple[int, bool]:
    return x + y, x > y


@inlined
def tripled(x: int, by: int = _FACTOR) -> int:
    return x * by


def called(x: int, y: int) -> int:
    total, above = pair(x, y)
    first, second = tripled(total), tripled(y, 2)
    first, second = second, first
    return first - second if above else first + second


def returned(x: int, y: int) -> int:
    if x > y:
        return x
    for i in range(y - x):
        if i * i > 50:
            return i
    return -1


def digits(x: int, y: int) -> int:
    total = 0
    while x > 0:
        total += x % y
        x = x // y
    return total


@inlined
def repeated(x: int, y: int) -> int:
    return digits(x, y) + digits(y, 7) + digits(x + y, 5) + digits(x - y, 3)


@not_inlined
def once(x: int, y: int) -> int:
    return digits(x, y) + digits(y, 7) + digits(x + y, 5) + digits(x - y, 3)


def calls_inlined(x: int, y: int) -> int:
    return repeated(x, 2 + y % 5) - repeated(y, 3 + x % 3) + repeated(x % 99, 9) - repeated(y % 99, 8)


def calls_not_inlined(x: int, y: int) -> int:
    return once(x, 2 + y % 5) - once(y, 3 + x % 3) + once(x % 99, 9) - once(y % 99, 8)


def test_a_function_that_is_not_inlined_is_in_the_code_once() -> None:
    def size(function: Callable[[int, int], int]) -> int:
        def entry(begin: int, end: int, out: int, x: int, y: int) -> None:
            write_64(out, function(x, y))

        return len(compile_function("entry", entry, types.void(*[types.int64] * 5), "x86-64-v2"))

    assert size(calls_not_inlined) < 0.75 * size(calls_inlined)


@pytest.mark.parametrize(
    "function",
    [quotients, bits, extremes, choices, searched, called, returned, calls_inlined, calls_not_inlined],
    ids=lambda f: f.__name__,
)
@pytest.mark.one_in(3)
def test_whole_numbers_are_pythons(function: Callable[[int, int], int]) -> None:
    native = compiled(function, types.int64, types.int64)

    @settings(max_examples=200)
    @given(_NUMBERS, _NUMBERS.filter(bool))
    def same(x: int, y: int) -> None:
        assert native(x, y) == function(x, y)

    same()


def divided(x: int, y: int) -> int:
    return x // y


def left_over(x: int, y: int) -> int:
    return x % y


def test_quotients_of_any_numbers_are_pythons_and_zero_where_there_is_none() -> None:
    quotient, remainder = (compiled(f, types.int64, types.int64) for f in (divided, left_over))

    @settings(max_examples=300)
    @given(_INT64, st.one_of(_INT64, st.integers(-2, 2)))
    def same(x: int, y: int) -> None:
        fits = y != 0 and (x, y) != (-(2**63), -1)
        assert (quotient(x, y), remainder(x, y)) == ((x // y, x % y) if fits else (0, 0))

    same()


def sums(x: int, y: int) -> int:
    return x * y + x - y


def test_sums_and_products_wrap_at_64_bits() -> None:
    native = compiled(sums, types.int64, types.int64)

    @given(_INT64, _INT64)
    def same(x: int, y: int) -> None:
        assert native(x, y) == (sums(x, y) + 2**63) % 2**64 - 2**63

    same()


def mixed(x: float, y: int) -> float:
    half = x / 2 if y else 0
    if y > 3:
        half = y
    total = half + y * 0.5 - (-x)
    for _ in range(min(abs(y), 4)):
        total = total / 3 + min(x, total, 2)
    return total + math.fabs(x) + float(y < 0) + int(total) + y / 4


def compared(x: float, y: float) -> float:
    found = 0
    if x < y or x != x:
        found += 1
    if not x > y:
        found += 2
    if x == y or y <= x:
        found += 4
    return found + max(x, 1.0) + min(1.0, y)


def test_floats_are_pythons() -> None:
    native = compiled(mixed, types.float64, types.int64, result=types.float64)

    @settings(max_examples=200)
    @given(_FLOATS, _SMALL)
    def same(x: float, y: int) -> None:
        assert native(x, y) == mixed(x, y)

    same()


def test_comparisons_with_nan_are_pythons() -> None:
    native = compiled(compared, types.float64, types.float64, result=types.float64)
    for x in (math.nan, 0.0, -0.0, 1.5, math.inf, -math.inf):
        for y in (math.nan, 0.0, -2.5, math.inf):
            assert struct.pack("d", native(x, y)) == struct.pack("d", compared(x, y)), (x, y)


def cubed(x: float, y: int) -> float:
    return x**3 + (1.0 + math.fabs(x)) ** 2 * y


def test_small_powers_are_products() -> None:
    native = compiled(cubed, types.float64, types.int64, result=types.float64)
    for x in np.random.default_rng().uniform(0, 9, 100).tolist():
        assert native(x, 3) == x * x * x + (1.0 + x) * (1.0 + x) * 3


def singles(x: float, y: float) -> float:
    a, b = np.float32(x), np.float32(y)
    return float(a * b + np.float32(0.1)) + float(a) * 0.5


def functions(x: float, y: float) -> float:
    tail = math.erf(x) + math.erfc(y) + math.tanh(x) + math.expm1(y) + math.log1p(x) + np.fmod(x, y) + np.rint(y)
    return (
        tail
        + math.sqrt(x)
        + math.exp(y)
        + math.log(x)
        + math.pow(x, y)
        + math.sin(x)
        + math.cos(y)
        + np.floor(x)
        + np.ceil(y)
    )


def test_single_precision_is_rounded_as_numpy_rounds_it() -> None:
    native = compiled(singles, types.float64, types.float64, result=types.float64)
    for x, y in np.random.default_rng().uniform(-9, 9, (200, 2)).tolist():
        a, b = np.float32(x), np.float32(y)
        assert native(x, y) == float(np.float32(a * b) + np.float32(0.1)) + float(a) * 0.5


def test_functions_of_floats_are_the_librarys() -> None:
    native = compiled(functions, types.float64, types.float64, result=types.float64)
    for x, y in np.random.default_rng().uniform(0.1, 4, (200, 2)).tolist():
        assert native(x, y) == pytest.approx(functions(x, y), rel=1e-13)


def kept(x: int, y: int) -> int:
    for i in range(x):
        last = i * y
    return last  # type: ignore[possibly-undefined]


def test_a_variable_that_no_turn_assigns_is_zero() -> None:
    native = compiled(kept, types.int64, types.int64)
    assert [native(4, 5), native(0, 5)] == [15, 0]


def changed(x: int, y: int) -> float:
    total = 0
    for _ in range(x):
        total = total + 0.5  # type: ignore[assignment]
    return total


def recursive(x: int, y: int) -> int:
    return recursive(x - 1, y) if x > 0 else y


def listed(x: int, y: int) -> int:
    return [x, y][0]


def partial_return(x: int, y: int) -> int:  # type: ignore[return]
    if x > y:
        return x


def unknown(x: int, y: int) -> int:
    return x + missing  # type: ignore[name-defined]  # noqa: F821


def different(x: int, y: int) -> int:
    found = tripled if x > 0 else returned
    return found(x, y)


def raising(x: int, y: int) -> int:
    if x > y:
        raise ValueError("too large")
    return x


def too_large(x: int, y: int) -> int:
    return x + 0x8000_0000_0000_0000


def named(x: int, y: int) -> int:
    return tripled(x, by=y)


def too_many(x: int, y: int) -> int:
    return tripled(x, y, y)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("function", "line", "words"),
    [
        (changed, 2, "total is int64 before a loop and float64 after a turn: begin with float64"),
        (recursive, 1, "recursive calls itself"),
        (listed, 1, "kernels have no List"),
        (partial_return, 2, "partial_return does not return a value on every way"),
        (unknown, 1, "missing is not defined"),
        (different, 1, "a choice by a value is between values"),
        (raising, 2, "kernels have no Raise"),
        (too_large, 1, "9223372036854775808 does not fit into int64"),
        (named, 1, "arguments of calls have no names and no stars"),
        (too_many, 1, "tripled takes 2 arguments, not 3"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_what_is_not_in_the_language_is_refused_with_its_place(
    function: Callable[..., int], line: int, words: str
) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(function, types.int64, types.int64)
    first = function.__code__.co_firstlineno
    assert words in caught.value.log
    places = [f"({__file__}:{first + line + extra})" for extra in (0, 1)]
    assert any(place in caught.value.log for place in places) or function is too_many, caught.value.log
