"""Shuffle: a reorder between two views of memory in which the axis is two dimensions."""

from __future__ import annotations

from ...desc import Arg, MemoryDesc, PrimitiveAttr, Shuffle
from ...desc.memory_desc import MAX_DIMS
from ...engines.target import Target
from ..program import Program
from .blocks import refuse_different
from .implementation import NativeImplementation
from .nest_builder import NestBuilder


class NativeShuffle(NativeImplementation[Shuffle]):
    """Any permuted layout, the same of src and dst; any data type."""

    name = "native:nest"

    def reject(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "post-ops are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype:
            return f"conversion from {op.src.dtype} to {op.dst.dtype}"
        if op.src.ndims == MAX_DIMS:
            return f"{MAX_DIMS} dimensions; the axis is seen as two"
        if op.src.layout.blocks:
            return f"layout {op.src.tag}; blocks are not supported"
        return refuse_different(op.src, op.dst)

    def program(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestBuilder()
        if op.dst.elements:
            rows = op.src.dims[op.axis] // op.group_size
            src = _divided(op, (op.group_size, 1), rows)
            build.move(src, _divided(op, (1, rows), rows), ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)))
        return build.program()


def _divided(op: Shuffle, steps: tuple[int, int], rows: int) -> MemoryDesc:
    """Return a view whose axis is (rows, group), one ``steps`` elements of the axis from the next."""
    own, at = op.src.outer_strides(), op.axis
    dims = (*op.src.dims[:at], rows, op.group_size, *op.src.dims[at + 1 :])
    strides = (*own[:at], *(own[at] * step for step in steps), *own[at + 1 :])
    return MemoryDesc(dims, op.src.dtype, strides=strides)


IMPLEMENTATIONS = (NativeShuffle(),)
