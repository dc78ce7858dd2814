"""Top k of every data type, with any strides."""

from __future__ import annotations

import math
import struct
from typing import Final

from ...desc import Arg, PrimitiveAttr, TopK, item_size
from ...engines.target import Target
from ...kernels.native.limits import key_lanes
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .arg_reduction import winners
from .implementation import NativeImplementation
from .strided_loops import StridedLoop, as_table, byte_strides, nested, refuse_blocks, steps

#: Items of work at most: each has a heap of its own in the scratchpad.
_ITEMS: Final = 64
#: Elements of a row that are kept in vectors at most: each of those that are better passes by half of these.
_RISING: Final = 64
#: Rows that are not adjacent and are copied to be so at least, and their elements at most: these, or so many times k. Fewer
#: rows leave lanes empty, and a heap passes over most elements of longer rows.
_FEW_ROWS: Final = 8
_SHORT: Final = 64
_SHORT_OF_K: Final = 16
#: The same in vectors of 16 lanes of AVX-512: so many elements, and so many more for each of k.
_WIDE: Final = "x86-64-v4"
_MANY_ROWS: Final = 64
_SHORT_IN_WIDE: Final = 300
_MORE_OF_K: Final = 14
#: Elements that are sorted by a byte in the time that its values are counted and summed.
_COUNTED: Final = 150


class NativeTopK(NativeImplementation[TopK]):
    """Vectors of adjacent or short rows, a heap of the best elements of a row, the kernel of arg reductions for one of them.

    Indices are s32 or s64.
    """

    name = "native:top_k"
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: TopK, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype:
            return f"conversion from {op.src.dtype} to {op.dst.dtype}"
        if op.indices.dtype not in ("s32", "s64"):
            return f"indices of {op.indices.dtype}; only s32 and s64 are supported"
        return refuse_blocks(op.src, op.dst, op.indices)

    def program(self, op: TopK, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        if op.k == 1 and op.src.dims[op.axis] < 1 << 31:
            return winners(op.src, op.indices, op.axis, smallest=not op.largest, copy=op.dst)
        strides = list(zip(*(byte_strides(md) for md in (op.src, op.dst, op.indices)), strict=True))
        loops = nested([StridedLoop(op.src.dims[d], each) for d, each in enumerate(strides) if d != op.axis])
        size, index_size = item_size(op.src.dtype), item_size(op.indices.dtype)
        numbers: tuple[int, ...] = (op.k, op.src.dims[op.axis], *strides[op.axis])
        lanes = key_lanes(op.src.dtype)
        adjacent = bool(loops) and loops[-1].steps == (size, size, index_size)
        if loops and op.k <= _RISING and (adjacent or _pays_to_copy(op, loops[-1].extent, target.isa)):
            inner = loops.pop()
            rows, room = steps(loops) * -(-inner.extent // lanes), 192 * op.k
            room += 0 if adjacent else lanes * size * op.src.dims[op.axis]
            group = -(-rows // _ITEMS)
            kernel = KernelSpec.of(
                "top_k_columns", dtype=op.src.dtype, size=size, index_size=index_size, smallest=not op.largest,
                adjacent=adjacent,
            )  # fmt: skip
            numbers = (len(loops), inner.extent, rows, group, *inner.steps, *numbers)
        elif _pays_to_sort(op, digits := 64 // lanes):
            # Words of a key and an index, twice, and counts of all values of a byte.
            rows, room = steps(loops), 2 * (128 // lanes) * op.src.dims[op.axis] + digits * 256 * 8
            group = -(-rows // _ITEMS)
            kernel = KernelSpec.of(
                "top_k_sorted", dtype=op.src.dtype, size=size, index_size=index_size, smallest=not op.largest
            )
            numbers = (len(loops), rows, group, room, *numbers)
        else:
            rows, room = steps(loops), 16 * op.k
            group = -(-rows // _ITEMS)
            kernel = KernelSpec.of(
                "top_k", dtype=op.src.dtype, size=size, index_size=index_size, smallest=not op.largest,
                adjacent=strides[op.axis][0] == size,
            )  # fmt: skip
            numbers = (len(loops), rows, group, *numbers)
        memories: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.DST, Arg.DST_1)]
        args = (*memories, ("t", 0), ("s", 0), *(("i", number) for number in numbers))
        table, work = as_table(loops), -(-rows // group)
        tables = struct.pack(f"<{len(table)}q", *table)
        return Program((kernel,), (Launch(0, args, work),), tables, room * work)


def _pays_to_sort(op: TopK, digits: int) -> bool:
    """Return whether to sort a row by its keys' bytes takes less time than a heap, from which each of the best is taken.

    An element passes half of the levels of the heap before it has as many elements as it will, and those that are taken pass all.
    """
    length = op.src.dims[op.axis]
    heap = op.k * (math.log(length / op.k) + 1.5) * math.log2(max(2, op.k))
    return length < 1 << 31 and heap > digits * (length + _COUNTED)


def _pays_to_copy(op: TopK, rows: int, isa: str) -> bool:
    """Return whether rows that are not adjacent are better copied than kept in a heap each."""
    most = max(_SHORT, _SHORT_OF_K * op.k)
    if isa == _WIDE and rows >= _MANY_ROWS and key_lanes(op.src.dtype) == 16:
        most = _SHORT_IN_WIDE + _MORE_OF_K * op.k
    return rows >= _FEW_ROWS and op.src.dims[op.axis] <= most


IMPLEMENTATIONS = (NativeTopK(),)
