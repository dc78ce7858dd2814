"""Grid sample of f32 and f64, row-major, up to three spatial dimensions."""

from __future__ import annotations

import math
import struct

from ...desc import Arg, GridSample, PrimitiveAttr
from ...desc.operations.grid_sample import SAMPLE_PADDINGS
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation

#: Spatial dimensions that the kernel has, and elements of a plane that its places count.
_SPATIAL = 3
_PLANE = 1 << 29
#: Elements that an item writes, about.
_ITEM = 4096
#: Places whose neighbours the kernel computes at a time.
_POINTS = 128


class NativeGridSample(NativeImplementation[GridSample]):
    """Places of an image, cut into pieces, in all of its channels."""

    name = "native:grid_sample"
    stays_inside = True

    def reject(self, op: GridSample, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.ndims - 2 > _SPATIAL:
            return f"{op.src.ndims - 2} spatial dimensions; at most {_SPATIAL} are supported"
        if op.src.dtype != op.dst.dtype or op.src.dtype not in ("f32", "f64") or op.grid.dtype not in ("f32", "f64"):
            return f"{op.src.dtype} to {op.dst.dtype} by a grid of {op.grid.dtype}; only f32 and f64 are supported"
        if math.prod(op.src.dims[2:]) >= _PLANE:
            return f"planes of {math.prod(op.src.dims[2:])} elements; fewer than {_PLANE} are supported"
        if math.prod(op.src.dims[2:]) == 1:
            return "planes of one element have no pairs of neighbours"
        if not (op.src.is_plain and op.grid.is_plain and op.dst.is_plain):
            return "only row-major layouts are supported"
        return None

    def program(self, op: GridSample, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        strides, sizes = op.src.outer_strides()[2:], op.src.dims[2:]
        count = len(sizes)
        # Adjacent elements last: behind them are only dimensions of one element.
        last = max((axis for axis in range(count) if sizes[axis] > 1), default=count - 1)
        order = [*(axis for axis in range(count) if axis != last), last]
        table = [0] * 3 * (_SPATIAL - count)
        for axis in order:
            table += (sizes[axis], strides[axis], count - 1 - axis)
        images, channels, points = op.dst.dims[0], op.dst.dims[1], math.prod(op.dst.dims[2:])
        chunk = _POINTS * max(1, _ITEM // (_POINTS * channels))
        kernel = KernelSpec.of(
            "grid_sample", algorithm=op.algorithm, dtype=op.src.dtype, wide=op.grid.dtype == "f64"
        )  # fmt: skip
        numbers = (
            count,
            channels,
            math.prod(sizes),
            points,
            chunk,
            SAMPLE_PADDINGS.index(op.padding),
            int(op.align_corners),
        )
        memories: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.SRC_1, Arg.DST)]
        args = (*memories, ("t", 0), *(("i", number) for number in numbers))
        work = images * -(-points // chunk)
        return Program((kernel,), (Launch(0, args, work),), struct.pack(f"<{len(table)}q", *table))


IMPLEMENTATIONS = (NativeGridSample(),)
