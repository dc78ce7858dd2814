"""Pooling: kernels forward for blocks of 16 channels, for row-major and for whole images; two backward.

Windows of 3 x 3 that move by one have kernels of their own in both layouts, and so have large windows and row-major ones of
2 x 2; row-major ones of few columns that move by one to four have others, and so have small planes. Windows in three dimensions
that share slabs pool along the depth first.
"""

from __future__ import annotations

import math
import struct

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, MemoryDesc, Pooling, PrimitiveAttr, Reduction
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .backward import NativeBackward, refuse_gradient
from .blocks import EVERY_TYPE, LANES, channel_blocks, channel_tail, is_blocked, refuse_different, refuse_permuted
from .implementation import NativeImplementation
from .pooling_bytes import NativeBytePooling
from .reduction import NativeReduction

#: Vectors that registers hold beside what is combined with them, by ISA level; others have no loads with masks.
_VECTORS = {"x86-64-v4": 4, "x86-64-v3": 2}
#: Elements of a row that `pooling_rows` has room for.
_ROOM = 1024
#: Bytes of a plane that `pooling_planes` takes: it comes back to each row, which the nearest cache still has.
_PLANE = 1 << 15
#: Elements of a plane that `pooling_small` has room for.
_SMALL = 1024
#: Columns of windows that `pooling_shifts` and `pooling_planes` combine: with more, other kernels have less work.
_SHIFTS = 7
#: ISA level -> rows and columns of windows that are made of smaller ones in less time than `pooling_planes` permutes columns.
_DOUBLED = {"x86-64-v4": 6, "x86-64-v3": 5}
#: Columns of windows that are combined in registers.
_FEW_COLUMNS = 3
#: By how many columns these windows move.
_STRIDES = (2, 3, 4)
#: Columns of windows that `pooling_near` loads one by one.
_NEAR = 4
#: Elements of planes of f32 that stay in the nearest caches between passes over small windows.
_CACHED = 1 << 13
#: Types that are computed with in float32.
_NARROW = ("f16", "bf16")
#: Types of maxima that a kernel of their own compares exactly.
_LONGS = ("s64", "u64")
#: Elements of windows along rows that are reduced one after the other, at least, and by how many they move.
_RUN, _APART = 16, 5
#: ISA level -> the most elements of whole planes whose averages are reductions of rows. Not measured on others.
_REDUCED = {"x86-64-v3": 256}
#: Spatial dimensions that the kernels' geometry has.
_SPATIAL = 3


class NativePooling(NativeImplementation[Pooling]):
    """One destination row a work item; src and dst in the same layout."""

    name = "native:pooling"
    stays_inside = True

    def reject(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "pooling takes no post-ops"
        if len(op.kernel) > _SPATIAL:
            return f"{len(op.kernel)} spatial dimensions; at most {_SPATIAL} are supported"
        op = self.complete(op, attr, target)
        return refuse_permuted(op.src, op.dst, dtypes=EVERY_TYPE) or refuse_different(op.src, op.dst)

    def program(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        memories: tuple[LaunchArgument, ...] = (("m", (Arg.SRC, 0)), ("m", (Arg.DST, 0)))
        if op.dst.dtype in _LONGS and op.algorithm == "max":
            return self._longs(op, memories)
        if _is_mean_of_rows(op, target.isa):
            rows, length = math.prod(op.dst.dims[:2]), math.prod(op.src.dims[2:])
            src, dst = (MemoryDesc((rows, size), op.dst.dtype) for size in (length, 1))
            return NativeReduction().program(Reduction(src, dst, "mean"), attr, target)
        if _is_small(op, target.isa):
            (height, top), (width, left) = zip(op.kernel[-2:], op.padding_l[-2:], strict=True)
            windows = {"width": width, "left": left, "height": height, "top": top}
            kernel = KernelSpec.of("pooling_small", algorithm=op.algorithm, **windows)
            launch = Launch(0, (*memories, ("t", 0)), math.prod(op.dst.dims[:2]))
            return Program((kernel,), (launch,), tables=_geometry(op))
        return self._slabs(op, memories, target) if _shares_slabs(op) else self._planes(op, op, memories, target)

    def _planes(self, op: Pooling, deep: Pooling, memories: tuple[LaunchArgument, ...], target: Target) -> Program:
        """Return the program of windows whose slabs were combined before, if they share any in ``deep``."""
        tables = _geometry(op, deep)
        images = math.prod(op.dst.dims[:2])
        lines = math.prod(op.dst.dims[2:-1])
        if is_blocked(op.dst):
            blocks = channel_blocks(op.dst)
            tail = channel_tail(op.dst) if op.dst.dims[1] % LANES else LANES
            args = (*memories, ("t", 0), ("i", blocks), ("i", tail))
            if _is_separable(op):
                return _separate(op, args, op.dst.dims[0] * blocks, tables)
            return self._one(op, "blocked", args, op.dst.dims[0] * blocks * lines, tables)
        if _is_whole(op):
            return self._one(op, "whole", (*memories, ("i", math.prod(op.src.dims[2:]))), images, b"")
        if _are_runs(op):
            kernel = KernelSpec.of(
                "pooling_runs", algorithm="max" if op.algorithm == "max" else "avg", dtype=op.dst.dtype
            )
            numbers = (op.src.dims[-1], op.dst.dims[-1], op.kernel[-1], op.strides[-1])
            args = (*memories, *(("i", number) for number in numbers))
            return Program((kernel,), (Launch(0, args, op.dst.elements),))
        if _is_pairs(op) and not _shares_slabs(deep):
            kernel = KernelSpec.of("pooling_pairs", algorithm="max" if op.algorithm == "max" else "avg")
            launch = Launch(0, (*memories, ("t", 0)), images * math.prod(op.dst.dims[2:-2]))
            return Program((kernel,), (launch,), tables=tables)
        if vectors := _takes_planes(op, target.isa):
            part: dict[str, str | int] = {"algorithm": op.algorithm, "window": op.kernel[-1], "stride": op.strides[-1]}
            step = op.dilations[-1] + 1 if any(op.dilations[-2:]) else 0
            kernel = KernelSpec.of("pooling_planes", **part, vectors=vectors, step=step)
            launch = Launch(0, (*memories, ("t", 0)), images * math.prod(op.dst.dims[2:-2]))
            return Program((kernel,), (launch,), tables=tables)
        if _is_doubled(op):
            return _double(op, (*memories, ("t", 0)), images, tables)
        if _is_separable(op):
            return _separate(op, (*memories, ("t", 0)), images, tables)
        return self._one(op, "rows", (*memories, ("t", 0)), images * lines, tables)

    def _slabs(self, op: Pooling, memories: tuple[LaunchArgument, ...], machine: Target) -> Program:
        """Return the program that pools along the depth first, then in two dimensions."""
        between = MemoryDesc((*op.src.dims[:2], op.dst.dims[2], *op.src.dims[3:]), op.src.dtype, op.src.tag)
        flat = replace(
            op, src=between, kernel=(1, *op.kernel[1:]), strides=(1, *op.strides[1:]), dilations=(0, *op.dilations[1:]),
            padding_l=(0, *op.padding_l[1:]), padding_r=(0, *op.padding_r[1:]),
        )  # fmt: skip
        source, target = memories
        # Behind the scratchpad of the second step.
        room = -(-self._planes(flat, op, memories, machine).scratchpad // 64) * 64
        then = self._planes(flat, op, (("s", room), target), machine)
        elements = math.prod(between.padded_dims[3:])
        images = op.dst.dims[0] * op.dst.padded_dims[1]
        if is_blocked(op.dst):
            elements, images = elements * LANES, images // LANES
        kernel = KernelSpec.of("pooling_slabs", algorithm="max" if op.algorithm == "max" else "sum")
        args = (source, ("s", room), ("t", 0), ("i", elements))
        launch = Launch(len(then.kernels), args, images * op.dst.dims[2])
        return Program((*then.kernels, kernel), (launch, *then.launches), then.tables, room + between.nbytes)

    def _longs(self, op: Pooling, memories: tuple[LaunchArgument, ...]) -> Program:
        lanes, blocks, tail = 1, 1, 1
        if is_blocked(op.dst):
            lanes, blocks, tail = LANES, channel_blocks(op.dst), op.dst.dims[1] % LANES or LANES
        images = op.dst.dims[0] * (blocks if lanes > 1 else op.dst.dims[1])
        kernel = KernelSpec.of("pooling_longs", dtype=op.dst.dtype, lanes=lanes)
        args = (*memories, ("t", 0), ("i", blocks), ("i", tail))
        return Program((kernel,), (Launch(0, args, images * math.prod(op.dst.dims[2:-1])),), tables=_geometry(op))

    def _one(self, op: Pooling, part: str, args: tuple[LaunchArgument, ...], work: int, tables: bytes) -> Program:
        kernel = KernelSpec.of("pooling", algorithm=op.algorithm, part=part, dtype=op.dst.dtype)
        if op.dst.dtype == "f32" and _slides(op, 3):
            kernel = KernelSpec.of("pooling_slide", algorithm=op.algorithm, part=part, window=3, gaps=False)
        elif part == "rows" and _slides_with_gaps(op):
            window = op.kernel[-1]
            kernel = KernelSpec.of("pooling_slide", algorithm=op.algorithm, part=part, window=window, gaps=True)
        elif part == "rows" and _is_near(op):
            kernel = KernelSpec.of("pooling_near", algorithm=op.algorithm, dtype=op.dst.dtype, window=op.kernel[-1])
        elif part == "rows" and op.dst.dtype == "f32" and _slides(op, 2):
            kernel = KernelSpec.of("pooling_slide", algorithm=op.algorithm, part=part, window=2, gaps=False)
        elif part == "rows" and _shifts(op):
            moves = {"window": op.kernel[-1], "stride": op.strides[-1]}
            kernel = KernelSpec.of("pooling_shifts", algorithm=op.algorithm, dtype=op.dst.dtype, **moves)
        elif part == "rows" and _fits_row(op):
            kernel = KernelSpec.of("pooling_rows", algorithm=op.algorithm, dtype=op.dst.dtype)
        return Program((kernel,), (Launch(0, args, work),), tables=tables)


class NativePoolingBackward(NativeBackward[Pooling]):
    """A row of 16 channels or a channel's image a work item; both gradients and the workspace in one layout."""

    name = "native:pooling_backward"
    order = ("src", "dst")

    def reject(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> str | None:
        if len(op.kernel) > _SPATIAL:
            return f"{len(op.kernel)} spatial dimensions; at most {_SPATIAL} are supported"
        op = self.complete(op, attr, target)
        return refuse_gradient(op, attr, op.src, op.dst) or refuse_permuted(op.src)

    def program(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> Program:
        if op.src.elements == 0:
            return Program((), ())
        workspace: LaunchArgument = ("m", (Arg.WORKSPACE, 0)) if op.algorithm == "max" else ("i", 0)
        args: tuple[LaunchArgument, ...] = (("m", (Arg.DIFF_SRC, 0)), ("m", (Arg.DIFF_DST, 0)), workspace, ("t", 0))
        part, work = "planes", math.prod(op.src.dims[:2])
        if is_blocked(op.src):
            blocks = channel_blocks(op.src)
            part, work = "blocked", op.src.dims[0] * blocks * math.prod(op.src.dims[2:-1])
            args = (*args, ("i", blocks), ("i", channel_tail(op.src)))
        algorithm, scratchpad = op.algorithm, 0
        if algorithm == "avg_exclude_padding" and not _leave(op):
            algorithm = "avg_include_padding"
        if part == "planes":
            args = (*args, ("s", 0))
            scratchpad = 8 * op.src.elements if algorithm == "avg_exclude_padding" else 0
        kernel = KernelSpec.of("pooling_backward", algorithm=algorithm, part=part)
        return Program((kernel,), (Launch(0, args, work),), _geometry(op), scratchpad)


def _leave(op: Pooling) -> bool:
    """Return whether windows leave src, which then see different numbers of elements."""
    return any(
        left > 0 or (count - 1) * stride - left + (window - 1) * (dilation + 1) + 1 > size
        for size, count, window, stride, dilation, left in zip(
            op.src.dims[2:], op.dst.dims[2:], op.kernel, op.strides, op.dilations, op.padding_l, strict=True
        )
    )


def _are_runs(op: Pooling) -> bool:
    """Return whether windows are runs of many elements of rows, and begin so far apart that few share an element."""
    length, stride, rows = op.kernel[-1], op.strides[-1], op.src.dims[2:-1] == op.dst.dims[2:-1]
    within = (op.dst.dims[-1] - 1) * stride + length <= op.src.dims[-1] and not any((op.dilations[-1], *op.padding_l))
    return rows and set(op.kernel[:-1]) <= {1} and within and length >= _RUN and stride >= _APART


def _is_whole(op: Pooling, first: int = 0) -> bool:
    """Return whether each channel's only window covers exactly its source, along the dimensions from ``first`` on."""
    one = all(size == 1 for size in op.dst.dims[2:])
    covers = op.kernel[first:] == op.src.dims[2 + first :]
    return one and covers and not any((*op.dilations[first:], *op.padding_l[first:]))


def _is_mean_of_rows(op: Pooling, isa: str) -> bool:
    """Return whether row-major planes of floats that are averaged as wholes have so few elements that rows take less time."""
    is_mean = op.algorithm != "max" and op.dst.dtype in ("f32", *_NARROW) and op.dst.is_plain
    return is_mean and _is_whole(op) and 1 < math.prod(op.src.dims[2:]) <= _REDUCED.get(isa, 0)


def _is_pairs(op: Pooling) -> bool:
    """Return whether f32 windows of 2 x 2 cover planes of short rows without padding, no column left."""
    if op.dst.dtype != "f32" or len(op.kernel) < 2 or op.dst.dims[-1] >= LANES:
        return False
    *deep, height, width = zip(op.kernel, op.strides, op.dilations, op.padding_l, strict=True)
    flat = all(each == (1, 1, 0, 0) for each in deep) and op.src.dims[2:-2] == op.dst.dims[2:-2]
    covered = 2 * op.dst.dims[-2] <= op.src.dims[-2] and 2 * op.dst.dims[-1] == op.src.dims[-1]
    return flat and covered and all(each == (2, 2, 0, 0) for each in (height, width))


def _is_small(op: Pooling, isa: str) -> bool:
    """Return whether f32 windows move by one over small row-major planes, and their results have the size of the source.

    Vectors of 512 bits take parts of short rows, windows of two or three columns and the slabs of volumes in less time.
    """
    if op.dst.dtype != "f32" or not op.dst.is_plain or len(op.kernel) < 2 or isa not in _VECTORS:
        return False
    flat = all(size == 1 for size in op.kernel[:-2])
    if isa == "x86-64-v4" and (not flat or op.dst.dims[-1] <= LANES or op.kernel[-1] <= _FEW_COLUMNS):
        return False
    dense = all(each == 1 for each in op.strides) and not any(op.dilations) and op.src.dims == op.dst.dims
    around = all(left < window for left, window in zip(op.padding_l, op.kernel, strict=True))
    height, width = op.src.dims[-2:]
    # Rows of whole vectors leave no lanes unused.
    dense = dense and not (width % LANES == 0 and _slides(op, 3))
    depth = op.kernel[0] if len(op.kernel) == _SPATIAL else 1
    fits = height * width <= _SMALL and (height + op.kernel[-2]) * width <= 2 * _SMALL
    return (
        dense
        and around
        and fits
        and max(op.kernel) <= _SHIFTS
        and depth * -(-height * width // LANES) * LANES <= 4 * _SMALL
    )


def _shares_slabs(op: Pooling) -> bool:
    """Return whether f32 windows that see several slabs move by one along the depth: they see the most of these together."""
    is_deep = len(op.kernel) == _SPATIAL and op.kernel[0] > op.strides[0] == 1
    return is_deep and op.dst.dtype == "f32" and not _is_whole(op, 1)


def _slides(op: Pooling, window: int) -> bool:
    """Return whether flat windows of ``window`` rows and columns move by one in planes that are not windows themselves."""
    return _moves_by_one(op, window) and not any(op.dilations[-2:]) and not _is_whole(op)


def _slides_with_gaps(op: Pooling) -> bool:
    """Return whether windows of f32 with gaps move by one, with rows and columns that are combined in registers."""
    few = any(_moves_by_one(op, window) for window in (2, _FEW_COLUMNS))
    return few and op.dst.dtype == "f32" and any(op.dilations[-2:]) and op.dst.dims[-1] >= LANES


def _moves_by_one(op: Pooling, window: int) -> bool:
    """Return whether flat windows of ``window`` rows and columns move by one."""
    if len(op.kernel) < 2:
        return False
    *deep, height, width = zip(op.kernel, op.strides, op.dilations, op.padding_l, strict=True)
    flat = all(each == (1, 1, 0, 0) for each in deep) and op.src.dims[2:-2] == op.dst.dims[2:-2]
    return flat and all(each[:2] == (window, 1) for each in (height, width))


def _takes_planes(op: Pooling, isa: str) -> int:
    """Return how many vectors hold what the windows of a row see, 0 if `pooling_planes` does not take these windows."""
    deep = [*zip(op.kernel, op.strides, op.padding_l, strict=True)][:-2]
    flat = all(each == (1, 1, 0) for each in deep) and op.src.dims[2:-2] == op.dst.dims[2:-2]
    window, stride = op.kernel[-1], op.strides[-1]
    few = max(window, stride) <= _SHIFTS and 4 * math.prod(op.src.dims[-2:]) <= _PLANE
    # Vectors of 16 slide over windows of 2 x 2 in less time than permutations take; halves of them do not.
    slides = _slides(op, 3) or (isa == "x86-64-v4" and _slides(op, 2)) or _slides_with_gaps(op)
    if op.dst.dtype != "f32" or not (flat and few) or slides or _is_near(op):
        return 0
    if _is_doubled(op) and min(op.kernel[-2:]) >= _DOUBLED.get(isa, 0):
        return 0
    span = (window - 1) * (op.dilations[-1] + 1) + 1
    vectors = -(-((min(op.dst.dims[-1], LANES) - 1) * stride + span) // LANES)
    return vectors if vectors <= _VECTORS.get(isa, 0) else 0


def _is_near(op: Pooling) -> bool:
    """Return whether windows of few columns move by one along rows of 16 windows at least, which have no padding."""
    size, wanted, window = op.src.dims[-1], op.dst.dims[-1], op.kernel[-1]
    dense = op.strides[-1] == 1 and op.dilations[-1] == 0 and op.padding_l[-1] == 0
    return dense and 1 < window <= _NEAR and LANES <= wanted <= size - window + 1


def _shifts(op: Pooling) -> bool:
    """Return whether rows are pooled without scratch memory: windows of few columns without gaps that move by two to four."""
    stride, window = op.strides[-1], op.kernel[-1]
    # Each window begins in the source: vectors behind one that does not are not looked at.
    begins = stride * (op.dst.dims[-1] - 1) - op.padding_l[-1] < op.src.dims[-1]
    # Long rows of two columns a window are combined by `pooling_rows`, which takes less time then.
    few = (2 if stride == 2 and op.dst.dims[-1] >= LANES else 1) < window <= _SHIFTS
    return stride in _STRIDES and few and op.dilations[-1] == 0 and begins


def _fits_row(op: Pooling) -> bool:
    """Return whether what 16 windows see of a row has room where `pooling_rows` combines rows."""
    return 15 * op.strides[-1] + (op.kernel[-1] - 1) * (op.dilations[-1] + 1) + 1 <= _ROOM


def _is_separable(op: Pooling) -> bool:
    """Return whether f32 windows in planes are pooled along the width first, which is less work for large ones."""
    return op.dst.dtype == "f32" and not _slides(op, 3) and _is_large(op)


def _is_large(op: Pooling) -> bool:
    """Return whether windows in planes have so many elements that there is less work along the width and then the height."""
    if len(op.kernel) < 2 or any(op.dilations):
        return False
    flat = all(size == 1 for size in (*op.kernel[:-2], *op.strides[:-2])) and op.src.dims[2:-2] == op.dst.dims[2:-2]
    height, width = op.kernel[-2:]
    return (
        flat
        and not (op.dst.is_plain and (_is_near(op) or _shifts(op)))
        and 5 * (op.strides[-2] * width + height) <= 4 * height * width
    )


def _is_doubled(op: Pooling) -> bool:
    """Return whether large row-major windows move by one: they are made of windows of half their size."""
    if not op.dst.is_plain or op.strides[-2:] != (1, 1):
        return False
    if op.dst.dtype in _NARROW:
        pays = min(op.kernel[-2:]) >= _DOUBLED["x86-64-v3"] or math.prod(op.src.dims[-2:]) <= _CACHED
        return pays and _is_large(op)
    return _is_separable(op)


def _separate(op: Pooling, args: tuple[LaunchArgument, ...], planes: int, tables: bytes) -> Program:
    """Return the program that pools along the width into the scratchpad, then along the height."""
    images = planes * math.prod(op.dst.dims[2:-2])
    part, row = (
        ("blocked", LANES * op.dst.dims[-1]) if is_blocked(op.dst) else ("rows", -(-op.dst.dims[-1] // LANES) * LANES)
    )
    kernel = KernelSpec.of("pooling_separable", algorithm=op.algorithm, part=part)
    # Rows with margins, for windows that move by one.
    wide = 0
    if part == "rows":
        wide = 4 * (-(-(row + op.kernel[-1]) // LANES) + 1) * LANES if op.strides[-1] == 1 else 0
        args = (*args, ("i", wide))
    scratchpad = (4 * row + wide) * op.src.dims[-2] * images
    return Program((kernel,), (Launch(0, (*args[:3], ("s", 0), *args[3:]), images),), tables, scratchpad)


def _double(op: Pooling, args: tuple[LaunchArgument, ...], planes: int, tables: bytes) -> Program:
    """Return the program of windows that are made of windows of half their size, in scratch memory."""
    images = planes * math.prod(op.dst.dims[2:-2])
    lines, columns = (size + window - 1 for size, window in zip(op.dst.dims[-2:], op.kernel[-2:], strict=True))
    plane = 4 * lines * columns + 4 * op.kernel[-1] + 2 * 4 * LANES * 2
    nbytes = -(-(2 * plane + 4 * (op.dst.dims[-1] + 2 * LANES)) // 64) * 64
    kernel = KernelSpec.of("pooling_doubled", algorithm=op.algorithm, dtype=op.dst.dtype)
    launch = Launch(0, (*args, ("s", 0), ("i", nbytes)), images)
    return Program((kernel,), (launch,), tables, nbytes * images)


def _geometry(op: Pooling, deep: Pooling | None = None) -> bytes:
    """Return the table of the kernels: six numbers a dimension, missing outer dimensions of size 1.

    Behind them is the depth of the windows whose slabs are combined before, if they share any in ``deep``.
    """
    numbers = [1, 1, 1, 1, 1, 0] * (_SPATIAL - len(op.kernel))
    for at in range(len(op.kernel)):
        numbers += _along(op, at)
    depth = math.prod(op.dst.dims[2:-2])
    numbers += _along(deep, 0) if deep and _shares_slabs(deep) else [depth, depth, 1, 1, 1, 0]
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _along(op: Pooling, at: int) -> list[int]:
    """Return the six numbers of a spatial dimension."""
    sizes = (op.src.dims[2 + at], op.dst.dims[2 + at], op.kernel[at], op.strides[at])
    return [*sizes, op.dilations[at] + 1, op.padding_l[at]]


IMPLEMENTATIONS = (
    NativeBytePooling(),
    NativePooling(),
    NativePoolingBackward(),
)
