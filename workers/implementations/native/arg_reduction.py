"""Arg reduction of every data type, with any strides."""

from __future__ import annotations

import struct

from ...desc import Arg, ArgReduction, MemoryDesc, PrimitiveAttr, item_size
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
        return winners(op.src, op.dst, op.axis, smallest=op.algorithm == "min", last=op.select_last)


def winners(
    src: MemoryDesc, dst: MemoryDesc, axis: int, *, smallest: bool, last: bool = False, copy: MemoryDesc | None = None
) -> Program:
    """Return the program of the indices of winners along an axis; ``copy``, the second destination, gets their elements."""
    if dst.elements == 0:
        return Program((), ())
    indices = Arg.DST_1 if copy else Arg.DST
    size, index_size = item_size(src.dtype), item_size(dst.dtype)
    steps_of = [byte_strides(src), byte_strides(copy) if copy else (0,) * src.ndims, byte_strides(dst)]
    length, step = src.dims[axis], steps_of[0][axis]
    loops = nested(
        [StridedLoop(dst.dims[dim], tuple(each[dim] for each in steps_of)) for dim in range(src.ndims) if dim != axis]
    )
    # Adjacent rows come last, wherever their indices go.
    adjacent = next((loop for loop in loops if loop.steps[0] == size), None)
    inner = adjacent or (loops[-1] if loops else StridedLoop(1, (size, size, index_size)))
    if inner in loops:
        loops.remove(inner)
    # Along an axis of one element, too, adjacent rows are stored as vectors.
    part = "columns" if adjacent and (step != size or length == 1) else "row" if step == size else "any"
    chunk = max(1, min(inner.extent, ITEM_BYTES // (size * length)))
    if part == "columns":
        chunk = min(inner.extent, max(64, chunk))
    kernel = KernelSpec.of(
        "arg_reduction", part=part, dtype=src.dtype, size=index_size, smallest=smallest, last=last,
        copied=size if copy else 0,
    )  # fmt: skip
    numbers = (len(loops), inner.extent, chunk, *inner.steps, length, step)
    copied: LaunchArgument = ("m", (int(Arg.DST), 0)) if copy else ("i", 0)
    memories: list[LaunchArgument] = [("m", (int(Arg.SRC), 0)), copied, ("m", (int(indices), 0)), ("t", 0)]
    args = (*memories, *(("i", number) for number in numbers))
    table = as_table(loops)
    work = steps(loops) * -(-inner.extent // chunk)
    return Program((kernel,), (Launch(0, args, work),), struct.pack(f"<{len(table)}q", *table))


IMPLEMENTATIONS = (NativeArgReduction(),)
