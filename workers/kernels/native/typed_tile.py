"""The register tile of products of f64 or of integers: positions times groups of 16 columns, summed over all inputs.

Integers are summed as int64. As in `reduce_tile`, the loop over inputs is not unrolled.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import llvmlite.ir as ir

from ...desc.data_type import LIMITS, WRAPPING, item_size
from .compiler import types
from .compiler.language import intrinsic
from .elements import STORED, masked_load
from .first_lanes import masked_store
from .kept_mask import begin_mask, mask_of, next_mask
from .vec import I64, LANES, Builder, Value, fma, isa_of, lanes_below, maximum, pointer, splat

_VL: Final = ir.VectorType(I64, LANES)
#: Levels with loads under masks; elsewhere, those would take registers of sums.
_LOADS_PARTS: Final = ("x86-64-v3", "x86-64-v4")
#: In place of the distance to a residual if none is added: no distance of two addresses of elements is odd.
NOTHING: Final = 1


class _Arguments(NamedTuple):
    """Arguments of a tile: addresses, distances in bytes, and counts of columns."""

    K: Value
    left: Value
    left_row: Value
    lane: Value  #: from one input to the next in the left matrix
    right: Value
    block: Value  #: from 16 columns to the next 16
    right_row: Value
    dst: Value
    dst_row: Value
    bias: Value
    biased: Value  #: columns from the first of the tile that have a bias
    count: Value  #: columns from the first of the tile
    to_residual: Value  #: distance from dst, or NOTHING
    low: Value  #: bound before the residual is added
    bound: Value


def make_tile(dtype: str, positions: int, blocks: int, part: bool) -> Any:
    """Return the intrinsic that computes one tile; its arguments are those of `_Arguments`, in order.

    Of a ``part``, only the first ``count`` columns are written; else all. They are the only ones that are read, too, but on
    levels without loads under masks, whose weights have whole groups of columns.
    """

    @intrinsic
    def tile(
        _: Any, K: Any, left: Any, left_row: Any, lane: Any, right: Any, block: Any, right_row: Any, dst: Any,
        dst_row: Any, bias: Any, biased: Any, count: Any, to_residual: Any, low: Any, bound: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            arguments = _Arguments(*a)
            _emit_stores(b, dtype, blocks, part, arguments, _emit_sums(b, dtype, positions, blocks, part, arguments))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 13, types.float64, types.float64), emit

    return tile


def _emit_sums(b: Builder, dtype: str, positions: int, blocks: int, part: bool, a: _Arguments) -> list[Value]:
    """Return the sums, position by position, the groups of one position side by side."""
    width, stored = LANES * item_size(dtype), STORED[dtype]
    starts = [
        _widened(
            b, _load(b, b.add(a.bias, I64(width * j)), stored, lanes_below(b, b.sub(a.biased, I64(LANES * j)))), dtype
        )
        for j in range(blocks)
    ]
    bits = 8 * item_size(dtype)
    masked = lanes_below(b, a.count) if part and isa_of(b) in _LOADS_PARTS else None
    # Beside the sums of two positions, AVX2 has no registers for masks.
    keeps = masked is not None and bits >= 32 and (positions == 1 or isa_of(b) == "x86-64-v4")
    kept = begin_mask(b, masked, bits) if keeps else []
    before = b.block
    head, body, done = (b.append_basic_block(name) for name in ("head", "body", "done"))
    b.branch(head)

    b.position_at_end(head)
    first = (a.K, a.left, a.right, *kept, *(start for _ in range(positions) for start in starts))
    phis = [b.phi(value.type) for value in first]
    for phi, value in zip(phis, first, strict=True):
        phi.add_incoming(value, before)
    left, source, row = phis[:3]
    sums = phis[3 + len(kept) :]
    b.cbranch(b.icmp_signed(">", left, I64(0)), body, done)

    b.position_at_end(body)
    kept = next_mask(b, phis[3 : 3 + len(kept)]) if kept else []
    mask = mask_of(b, kept) if kept else masked
    factors = [_widened(b, _load(b, b.add(row, b.mul(a.block, I64(j))), stored, mask), dtype) for j in range(blocks)]
    new: list[Value] = []
    for position in range(positions):
        at = b.add(source, b.mul(a.left_row, I64(position)))
        value = splat(b, _widened(b, b.load(pointer(b, at, stored), align=1), dtype))
        for factor in factors:
            total = sums[len(new)]
            new.append(fma(b, value, factor, total) if dtype == "f64" else b.add(total, b.mul(value, factor)))
    following = (b.sub(left, I64(1)), b.add(source, a.lane), b.add(row, a.right_row), *kept, *new)
    for phi, value in zip(phis, following, strict=True):
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(done)
    return sums


def _emit_stores(b: Builder, dtype: str, blocks: int, part: bool, a: _Arguments, sums: list[Value]) -> None:
    width, stored = LANES * item_size(dtype), STORED[dtype]
    low, bound = splat(b, a.low), splat(b, a.bound)
    places = [
        b.add(b.add(a.dst, b.mul(a.dst_row, I64(number // blocks))), I64(width * (number % blocks)))
        for number in range(len(sums))
    ]

    def rows(has_residual: bool) -> None:
        for at, value in zip(places, sums, strict=True):
            if has_residual:
                added = _load(b, b.add(at, a.to_residual), stored, lanes_below(b, a.count) if part else None)
                value = b.fadd(maximum(b, low, value), added)
            narrow = maximum(b, bound, value) if dtype == "f64" else _narrowed(b, value, dtype)
            if part:
                masked_store(b, narrow, at, lanes_below(b, a.count))
            else:
                b.store(narrow, pointer(b, at, narrow.type), align=1)

    if dtype != "f64":
        rows(has_residual=False)
        return
    with b.if_else(b.icmp_signed("!=", a.to_residual, I64(NOTHING))) as branches:
        for branch, has_residual in zip(branches, (True, False), strict=True):
            with branch:
                rows(has_residual)


def _load(b: Builder, address: Value, stored: ir.Type, mask: Value | None) -> Value:
    """Load 16 elements, or those of a mask and zeros."""
    if mask is not None:
        return masked_load(b, address, stored, mask)
    return b.load(pointer(b, address, ir.VectorType(stored, LANES)), align=1)


def _widened(b: Builder, value: Value, dtype: str) -> Value:
    """Return a stored element, or a vector of them, as what is multiplied."""
    if item_size(dtype) == 8:
        return value
    wide = I64 if isinstance(value.type, ir.IntType) else _VL
    return b.zext(value, wide) if dtype[0] == "u" else b.sext(value, wide)


def _narrowed(b: Builder, value: Value, dtype: str) -> Value:
    if item_size(dtype) == 8:
        return value
    if dtype not in WRAPPING:
        least, most = (ir.Constant(_VL, [limit] * LANES) for limit in LIMITS[dtype])
        value = b.select(b.icmp_signed("<", value, least), least, value)
        value = b.select(b.icmp_signed(">", value, most), most, value)
    return b.trunc(value, ir.VectorType(STORED[dtype], LANES))
