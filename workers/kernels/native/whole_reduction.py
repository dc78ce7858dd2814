"""Reduce integers along any dimensions, exactly: sums and products wrap.

The table has the outer loops over results, innermost first, as (extent, bytes from step to step in src and dst), and then the
outer loops over what is reduced, as (extent, bytes from step to step in src). An item is some steps of the inner loop over
results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import llvmlite.ir as ir

from ...desc.data_type import LIMITS
from .compiler import types
from .compiler.language import inlined, intrinsic
from .elements import STORED, masked_load
from .vec import LANES, Builder, Value, VectorType, call, iload, lanes_below, pointer, splat
from .whole_numbers import whole_numbers

#: Algorithm -> the function of two numbers that it applies.
_STEPS: Final = {"sum": "add", "mul": "mul", "max": "max", "min": "min"}


def make(isa: str, dtype: str, algorithm: str, part: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel, and its signature.

    ``part`` is ``row`` if the elements of the inner reduced loop are adjacent, ``columns`` if those along the inner loop over
    results are, in src and dst, else ``any``.
    """
    of = whole_numbers(dtype, _STEPS[algorithm])
    size, load, load_one, store, combine = of.size, of.load, of.load_one, of.store, of.combine
    nothing, load_part, across, store_one = _reduction(dtype, algorithm)
    rows, columns = part == "row", part == "columns"

    @inlined
    def reduce_short_rows(src: int, dst: int, rows: int, src_step: int, dst_step: int, length: int) -> None:
        """Reduce rows of 2 to 4 elements, the number of which is constant, as single numbers."""
        for _ in range(rows):
            total = combine(load_one(src), load_one(src + size))
            if length > 2:
                total = combine(total, load_one(src + 2 * size))
            if length > 3:
                total = combine(total, load_one(src + 3 * size))
            store_one(dst, total)
            src += src_step
            dst += dst_step

    def kernel(
        begin: int, end: int, src: int, dst: int, table: int, loops: int, count: int, chunk: int, src_step: int,
        dst_step: int, reduced: int, runs: int, length: int, step: int,
    ) -> None:  # fmt: skip
        pieces = (count + chunk - 1) // chunk
        inner = table + 24 * loops
        for item in range(begin, end):
            outer = item // pieces
            start = (item - outer * pieces) * chunk
            source = src + start * src_step
            target = dst + start * dst_step
            for loop in range(loops):
                extent = iload(table + 24 * loop)
                left = outer // extent
                position = outer - left * extent
                outer = left
                source += position * iload(table + 24 * loop + 8)
                target += position * iload(table + 24 * loop + 16)
            steps = min(chunk, count - start)
            at = 0
            if rows and runs == 1 and 2 <= length <= 4:
                if length == 2:
                    reduce_short_rows(source, target, steps, src_step, dst_step, 2)
                elif length == 3:
                    reduce_short_rows(source, target, steps, src_step, dst_step, 3)
                else:
                    reduce_short_rows(source, target, steps, src_step, dst_step, 4)
                continue
            while at < steps:
                beside = columns and steps >= 16
                if beside:
                    at = min(at, steps - 16)
                total = nothing()
                for run in range(runs):
                    place, rest = source + at * src_step, run
                    for loop in range(reduced):
                        extent = iload(inner + 16 * loop)
                        left = rest // extent
                        place += (rest - left * extent) * iload(inner + 16 * loop + 8)
                        rest = left
                    if rows:
                        whole, index = length & -16, 0
                        if whole >= 64:
                            # Four vectors at once: one would wait for the step before.
                            second, third, fourth = nothing(), nothing(), nothing()
                            while whole - index >= 64:
                                at_once = place + index * size
                                total = combine(total, load(at_once))
                                second = combine(second, load(at_once + 16 * size))
                                third = combine(third, load(at_once + 32 * size))
                                fourth = combine(fourth, load(at_once + 48 * size))
                                index += 64
                            total = combine(combine(total, second), combine(third, fourth))
                        while index < whole:
                            total = combine(total, load(place + index * size))
                            index += 16
                        if length & 15:
                            total = combine(total, load_part(place + (length & -16) * size, length & 15))
                    elif beside:
                        for index in range(length):
                            total = combine(total, load(place + index * step))
                    else:
                        for index in range(length):
                            total = combine(total, load_one(place + index * step))
                if beside:
                    store(target + at * dst_step, total)
                    at += 16
                else:
                    store_one(target + at * dst_step, across(total) if rows else total)
                    at += 1

    return kernel, types.void(*[types.int64] * 14)


def _reduction(dtype: str, algorithm: str) -> tuple[Any, Any, Any, Any]:
    """Return the neutral numbers, a load of part of a vector with these behind it, lanes reduced to one, a store of lane 0."""
    kind = STORED[dtype]
    lanes = ir.VectorType(kind, LANES)
    vector = VectorType(f"i{kind.width}", lanes, types.int64)
    neutral = ir.Constant(
        lanes, [{"sum": 0, "mul": 1, "max": LIMITS[dtype][0], "min": LIMITS[dtype][1]}[algorithm]] * LANES
    )
    sign = "" if algorithm in ("sum", "mul") else dtype[0]
    name = f"llvm.vector.reduce.{sign}{'add' if algorithm == 'sum' else algorithm}.v{LANES}i{kind.width}"

    @intrinsic
    def nothing(_: Any) -> Any:
        return vector(), lambda context, b, sig, a: neutral

    @intrinsic
    def load_part(_: Any, address: types.Integer, count: types.Integer) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            mask = lanes_below(b, a[1])
            return b.select(mask, masked_load(b, a[0], kind, mask), neutral)

        return vector(types.int64, types.int64), emit

    @intrinsic
    def across(_: Any, value: Any) -> Any:
        return vector(vector), lambda context, b, sig, a: splat(b, call(b, name, a[0], result=kind))

    @intrinsic
    def store_one(_: Any, address: types.Integer, value: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(b.extract_element(a[1], ir.IntType(32)(0)), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, vector), emit

    return nothing, load_part, across, store_one
