"""Gather: rows of bytes or single elements, of any data type, at places that indices choose."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Gather, MemoryDesc, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .implementation import NativeImplementation
from .nest_builder import NestBuilder
from .past_caches import streams
from .strided_loops import ITEM_BYTES, StridedLoop, as_table, byte_strides, nested, refuse_blocks, steps

#: Steps of a loop that are too few for an item of short rows: to begin one takes as long as four. Bytes of short rows.
_SHORT: Final = 8
_SHORT_ROW: Final = 64
#: Bytes of a source that is looked through several times without waiting for memory, and how often a larger one is.
_CACHED: Final = 8 << 20
_PASSES: Final = 4
#: Bytes of a large result, and of a piece of a row that one item copies into it.
_LARGE: Final = 8 << 20
_LARGE_PIECE: Final = 1 << 16
#: Bytes of a row that is worth a store past the caches.
_LONG: Final = 1 << 8


class NativeGather(NativeImplementation[Gather]):
    """Any strides; elements that are adjacent in src and dst and share their indices are copied as vectors."""

    name = "native:gather"
    stays_inside = True
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Gather, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype:
            return f"conversion from {op.src.dtype} to {op.dst.dtype}"
        return refuse_blocks(op.src, op.indices, op.dst)

    def program(self, op: Gather, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        build = NestBuilder()
        source: LaunchArgument = ("m", (int(Arg.SRC), 0))
        if _is_worth_a_copy(op):
            plain = MemoryDesc(op.src.dims, op.src.dtype)
            between = build.book(plain.nbytes)
            build.move(op.src, plain, source, between)
            op, source = replace(op, src=plain), between
        size, (loops, axes, distance) = item_size(op.dst.dtype), _loops(op)
        loops, row = nested(loops), size
        if loops and loops[-1].steps == (size, 0, size):
            row *= loops.pop().extent
        inner = loops.pop(_inner(loops, row, op.src.nbytes)) if loops else StridedLoop(1, (0, 0, 0))
        chunk = max(1, min(inner.extent, ITEM_BYTES // row))
        piece = ITEM_BYTES if op.dst.nbytes < _LARGE else _LARGE_PIECE
        numbers = (len(loops), inner.extent, chunk, *inner.steps, row, min(row, piece), len(axes), distance)
        limits = [word for axis in axes for word in axis]
        table = [*as_table(loops), *limits]
        single = len(axes) == 1
        adjacent = single and row in (4, 8) and inner.steps[1:] == (item_size(op.indices.dtype), row)
        kernel = KernelSpec.of(
            "gather", size=row if row in (1, 2, 4, 8) else 0, wide=op.indices.dtype == "s64", single=single,
            adjacent=adjacent, streams=row >= _LONG and streams(op.dst, target),
        )  # fmt: skip
        memories: list[LaunchArgument] = [source, *(("m", (int(arg), 0)) for arg in (Arg.SRC_1, Arg.DST))]
        args = (*memories, ("t", build.table(table)), *(("i", number) for number in numbers))
        work = steps(loops) * -(-inner.extent // chunk) * -(-row // piece)
        build.launch(kernel, args, work)
        return build.program()


def _inner(loops: list[StridedLoop], row: int, nbytes: int) -> int:
    """Return the number of the loop that items are steps of: the last one, or the longest if that is short, as are rows."""
    last = len(loops) - 1
    if loops[last].extent >= (_SHORT if nbytes <= _CACHED else _PASSES + 1) or row > _SHORT_ROW:
        return last
    return max(range(last, -1, -1), key=lambda number: loops[number].extent)


def _is_worth_a_copy(op: Gather) -> bool:
    """Return whether rows are chosen whose elements are apart in src, at least as many as src has.

    They are adjacent in dst, and one after the other takes far longer than all of src copied row by row.
    """
    if op.algorithm != "rows" or op.dst.elements < op.src.elements or op.axis == op.src.ndims - 1:
        return False
    row = MemoryDesc(op.src.dims, op.src.dtype).outer_strides()[op.axis :]
    return row[0] > 1 and op.src.outer_strides()[op.axis + 1 :] != row[1:]


def _loops(op: Gather) -> tuple[list[StridedLoop], list[tuple[int, int]], int]:
    """Return the loops over src, indices and dst, (size, bytes) of the axes with an index, and bytes between indices."""
    src, index, dst = (byte_strides(md) for md in (op.src, op.indices, op.dst))
    sizes, counts = op.src.dims, op.indices.dims
    if op.algorithm == "elements":
        src_steps = [0 if dim == op.axis else step for dim, step in enumerate(src)]
        loops = [StridedLoop(*each) for each in zip(counts, zip(src_steps, index, dst, strict=True), strict=True)]
        return loops, [(sizes[op.axis], src[op.axis])], 0
    if op.algorithm == "rows":
        first, indexed, chosen, distance = op.axis, 1, len(counts), 0
        along = [0] * first
    else:
        first, indexed, chosen, distance = op.batch_dims, counts[-1], len(counts) - 1 - op.batch_dims, index[-1]
        along = list(index[:first])
        counts, index = counts[first:-1], index[first:-1]
    loops = [StridedLoop(sizes[dim], (src[dim], along[dim], dst[dim])) for dim in range(first)]
    loops += [StridedLoop(counts[dim], (0, index[dim], dst[first + dim])) for dim in range(chosen)]
    for place, dim in enumerate(range(first + indexed, len(sizes)), first + chosen):
        loops.append(StridedLoop(sizes[dim], (src[dim], 0, dst[place])))
    return loops, list(zip(sizes[first : first + indexed], src[first : first + indexed], strict=True)), distance


IMPLEMENTATIONS = (NativeGather(),)
