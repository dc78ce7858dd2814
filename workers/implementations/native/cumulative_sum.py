"""Cumulative sum of all data types but 16-bit floats and bool, with any strides."""

from __future__ import annotations

import struct
from typing import Final

from ...desc import LIMITS, Arg, CumulativeSum, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .strided_loops import ITEM_BYTES, StridedLoop, as_table, byte_strides, nested, refuse_blocks, steps

_TYPES: Final = ("f64", "f32", *LIMITS)
#: Adjacent rows of one item of sums over many bytes: their elements fill cache lines. The kernel adds up those of neighbouring
#: items together.
_ROWS: Final = 64
#: Most of them in an item of sums over fewer bytes. Two threads that write to the same lines of memory, or to lines side by
#: side, take longer than one there.
_WHOLE_ROWS: Final = 2048
_FEW_BYTES: Final = 8 << 20


class NativeCumulativeSum(NativeImplementation[CumulativeSum]):
    """Vectors of rows if they are adjacent, or along the axis if its elements are; sums of 64 bits."""

    name = "native:cumulative_sum"
    stays_inside = True
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: CumulativeSum, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype or op.src.dtype not in _TYPES:
            return f"data types {op.src.dtype} and {op.dst.dtype}; only one of {', '.join(_TYPES)} is supported"
        return refuse_blocks(op.src, op.dst)

    def program(self, op: CumulativeSum, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        size, src, dst = item_size(op.dst.dtype), byte_strides(op.src), byte_strides(op.dst)
        length, steps_along = op.dst.dims[op.axis], (src[op.axis], dst[op.axis])
        loops = nested(
            [StridedLoop(op.dst.dims[dim], (src[dim], dst[dim])) for dim in range(op.src.ndims) if dim != op.axis]
        )
        inner = loops.pop() if loops else StridedLoop(1, (size, size))
        # From the last element backwards, if the sums begin there.
        ends = [(length - 1) * step if op.reverse else 0 for step in steps_along]
        nexts = [-step if op.reverse else step for step in steps_along]
        form = {(size, size): "forward", (-size, -size): "backward"}.get((nexts[0], nexts[1]), "apart")
        chunk = max(1, min(inner.extent, ITEM_BYTES // (size * length)))
        if form == "apart" and inner.steps == (size, size) and inner.extent > 1:
            form = "rows"
            chunk = min(_WHOLE_ROWS if size * length * inner.extent <= _FEW_BYTES else _ROWS, inner.extent)
        kernel = KernelSpec.of("cumulative_sum", kind=op.dst.dtype, exclusive=op.exclusive, form=form)
        numbers = (len(loops), inner.extent, chunk, *inner.steps, length, *nexts)
        memories: list[LaunchArgument] = [
            ("m", (int(Arg.SRC), ends[0])),
            ("m", (int(Arg.DST), ends[1])),
            ("t", 0),
            ("s", 0),
        ]
        args = (*memories, *(("i", number) for number in numbers))
        table = as_table(loops)
        work = steps(loops) * -(-inner.extent // chunk)
        scratch = 8 * chunk * work if form == "rows" else 0
        return Program((kernel,), (Launch(0, args, work),), struct.pack(f"<{len(table)}q", *table), scratch)


IMPLEMENTATIONS = (NativeCumulativeSum(),)
