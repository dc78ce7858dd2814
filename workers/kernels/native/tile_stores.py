"""The end of a register tile: sums are stored after a residual is added and bounds are applied."""

from __future__ import annotations

import llvmlite.ir as ir

from .first_lanes import HAVE_MASKS, store_first
from .tile_shape import NO_RESIDUAL, Arguments, TileShape
from .vec import I32, I64, VF, Builder, Value, call, constant, isa_of, lanes_below, load, maximum, pointer, splat, store


def emit_stores(b: Builder, shape: TileShape, a: Arguments, sums: list[Value]) -> None:
    """Store the sums, position by position, the blocks of one position side by side."""
    low, bound = splat(b, a.low), splat(b, a.bound)
    masks = [lanes_below(b, b.sub(a.count, I64(16 * j))) for j in range(shape.blocks)]

    def rows(has_residual: bool, part: bool) -> None:
        if part and isa_of(b) not in HAVE_MASKS:
            some(has_residual)
            return
        for position in range(len(sums) // shape.blocks):
            to = b.add(a.dst, b.mul(a.dst_step, I64(position)))
            values = sums[position * shape.blocks :][: shape.blocks]
            blocks(to, values, has_residual, part)

    def some(has_residual: bool) -> None:
        for j in range(shape.blocks):
            places, values = [], []
            for position, value in enumerate(sums[j :: shape.blocks]):
                at = b.add(b.add(a.dst, b.mul(a.dst_step, I64(position))), b.mul(a.dst_block, I64(j)))
                if has_residual:
                    value = b.fadd(maximum(b, low, value), _masked_load(b, b.add(at, a.to_residual), masks[j]))
                places.append(at)
                values.append(maximum(b, bound, value))
            store_first(b, places, values, b.sub(a.count, I64(16 * j)))

    def blocks(to: Value, values: list[Value], has_residual: bool, part: bool) -> None:
        for j, value in enumerate(values):
            at = b.add(to, b.mul(a.dst_block, I64(j)))
            mask = masks[j] if part else None
            if has_residual:
                value = b.fadd(maximum(b, low, value), _masked_load(b, b.add(at, a.to_residual), mask))
            value = maximum(b, bound, value)
            if shape.tail == "zero":
                value = b.select(masks[j], value, constant(0.0))
            _masked_store(b, at, value, mask)

    with b.if_else(b.icmp_signed("!=", a.to_residual, I64(NO_RESIDUAL))) as branches:
        for branch, has_residual in zip(branches, (True, False), strict=True):
            with branch:
                if shape.tail != "keep":
                    rows(has_residual, part=False)
                    continue
                with b.if_else(b.icmp_signed("<", a.count, I64(16 * shape.blocks))) as (partly, whole):
                    with partly:
                        rows(has_residual, part=True)
                    with whole:
                        rows(has_residual, part=False)


def _masked_load(b: Builder, address: Value, mask: Value | None) -> Value:
    if mask is None:
        return load(b, address)
    return call(b, "llvm.masked.load.v16f32.p0", pointer(b, address, VF), I32(4), mask, constant(0.0))


def _masked_store(b: Builder, address: Value, value: Value, mask: Value | None) -> None:
    if mask is None:
        store(b, address, value)
    else:
        where = pointer(b, address, VF)
        call(b, "llvm.masked.store.v16f32.p0", value, where, I32(4), mask, result=ir.VoidType())
