"""Reduction of integers as whole numbers, with any strides: all whose sums and products wrap, and the extremes of others."""

from __future__ import annotations

import struct
from typing import Final

from ...desc import LIMITS, WRAPPING, Arg, PrimitiveAttr, Reduction, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .strided_loops import ITEM_BYTES, StridedLoop, as_table, byte_strides, nested, refuse_blocks, steps

#: Algorithms whose results float64 does not hold, or not with the bits that are cut off.
EXACT: Final = ("sum", "mul", "max", "min")
#: Those whose results never saturate.
_EXTREMES: Final = ("max", "min")


class NativeWholeReduction(NativeImplementation[Reduction]):
    """Vectors along the innermost reduced dimension, or along adjacent results."""

    name = "native:whole_reduction"
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Reduction, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.algorithm not in EXACT:
            return f"algorithm {op.algorithm}; only {', '.join(EXACT)} are supported"
        exact = tuple(LIMITS) if op.algorithm in _EXTREMES else WRAPPING
        if op.src.dtype != op.dst.dtype or op.src.dtype not in exact:
            return f"data types {op.src.dtype} and {op.dst.dtype}; only one of {', '.join(exact)} is supported"
        return refuse_blocks(op.src, op.dst)

    def program(self, op: Reduction, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        size, src, dst = item_size(op.dst.dtype), byte_strides(op.src), byte_strides(op.dst)
        is_reduced = [before != after for before, after in zip(op.src.dims, op.dst.dims, strict=True)]
        axes = range(op.src.ndims)
        reduced = nested([StridedLoop(op.src.dims[axis], (src[axis],)) for axis in axes if is_reduced[axis]])
        kept = nested([StridedLoop(op.dst.dims[axis], (src[axis], dst[axis])) for axis in axes if not is_reduced[axis]])
        run = reduced.pop() if reduced else StridedLoop(1, (size,))
        inner = kept.pop() if kept else StridedLoop(1, (size, size))
        part = "row" if run.steps == (size,) else "columns" if inner.steps == (size, size) else "any"
        chunk = max(1, min(inner.extent, ITEM_BYTES // (size * max(1, run.extent * steps(reduced)))))
        if part == "columns":
            chunk = min(inner.extent, max(64, chunk))
        kernel = KernelSpec.of("whole_reduction", dtype=op.src.dtype, algorithm=op.algorithm, part=part)
        numbers = (len(kept), inner.extent, chunk, *inner.steps, len(reduced), steps(reduced), run.extent, *run.steps)
        memories: list[LaunchArgument] = [("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), ("t", 0)]
        table = [*as_table(kept), *as_table(reduced)]
        args = (*memories, *(("i", number) for number in numbers))
        work = steps(kept) * -(-inner.extent // chunk)
        return Program((kernel,), (Launch(0, args, work),), struct.pack(f"<{len(table)}q", *table))
