"""Arg reduction of every data type, with any strides."""

from __future__ import annotations

import struct

from ...desc import Arg, ArgReduction, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .strided_loops import ITEM_BYTES, StridedLoop, as_table, byte_strides, nested, refuse_blocks, steps


class NativeArgReduction(NativeImplementation[ArgReduction]):
    """Vectors along the axis, or along a dimension whose elements are adjacent; indices of s32 and s64."""

    name = "native:arg_reduction"
    stays_inside = True
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: ArgReduction, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.dst.dtype not in ("s32", "s64"):
            return f"indices of {op.dst.dtype}; only s32 and s64 are supported"
        if op.src.dims[op.axis] >= 1 << 31:
            return f"an axis of {op.src.dims[op.axis]}; only sizes below 2**31 are supported"
        return refuse_blocks(op.src, op.dst)

    def program(self, op: ArgReduction, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        size, index_size = item_size(op.src.dtype), item_size(op.dst.dtype)
        src, dst = byte_strides(op.src), byte_strides(op.dst)
        length, step = op.src.dims[op.axis], src[op.axis]
        loops = nested(
            [StridedLoop(op.dst.dims[dim], (src[dim], dst[dim])) for dim in range(op.src.ndims) if dim != op.axis]
        )
        # Adjacent rows come last, wherever their indices go.
        adjacent = next((loop for loop in loops if loop.steps[0] == size), None)
        inner = adjacent or (loops[-1] if loops else StridedLoop(1, (size, index_size)))
        if inner in loops:
            loops.remove(inner)
        part = "row" if step == size or length == 1 else "columns" if adjacent else "any"
        chunk = max(1, min(inner.extent, ITEM_BYTES // (size * length)))
        if part == "columns":
            chunk = min(inner.extent, max(64, chunk))
        kernel = KernelSpec.of(
            "arg_reduction", part=part, dtype=op.src.dtype, size=index_size, smallest=op.algorithm == "min",
            last=op.select_last,
        )  # fmt: skip
        numbers = (len(loops), inner.extent, chunk, *inner.steps, length, step)
        memories: list[LaunchArgument] = [("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), ("t", 0)]
        args = (*memories, *(("i", number) for number in numbers))
        table = as_table(loops)
        work = steps(loops) * -(-inner.extent // chunk)
        return Program((kernel,), (Launch(0, args, work),), struct.pack(f"<{len(table)}q", *table))


IMPLEMENTATIONS = (NativeArgReduction(),)
