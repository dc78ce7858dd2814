"""Shuffle: a reorder between two views of memory in which the axis is two dimensions, or lane by lane in blocks."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, MemoryDesc, PrimitiveAttr, Shuffle
from ...desc.memory_desc import MAX_DIMS
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .blocks import LANES, channel_blocks, is_blocked, refuse_different
from .convolution_blocked import ints
from .implementation import NativeImplementation
from .nest_builder import NestBuilder

#: Positions of an item of work: those of all blocks that one reads from fit in the first-level cache.
_RUN: Final = 64


class NativeShuffle(NativeImplementation[Shuffle]):
    """Any permuted layout, the same of src and dst, of any data type; channels in blocks of 16 if they are f32."""

    name = "native:nest"
    stays_inside = True

    def reject(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "post-ops are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype:
            return f"conversion from {op.src.dtype} to {op.dst.dtype}"
        if op.src.ndims == MAX_DIMS:
            return f"{MAX_DIMS} dimensions; the axis is seen as two"
        if op.src.layout.blocks and not (is_blocked(op.src) and op.axis == 1 and op.src.dtype == "f32"):
            return f"layout {op.src.tag} of {op.src.dtype}; only f32 may have blocks, of 16 channels along the axis"
        return refuse_different(op.src, op.dst)

    def program(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestBuilder()
        if op.dst.elements and op.src.layout.blocks:
            positions, blocks = math.prod(op.dst.dims[2:]), channel_blocks(op.dst)
            args: tuple[LaunchArgument, ...] = (
                ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), *(("t", build.table(values)) for values in _tables(op)),
                *ints((blocks, positions, _RUN)),
            )  # fmt: skip
            build.launch(KernelSpec.of("shuffle"), args, op.dst.dims[0] * blocks * -(-positions // _RUN))
        elif op.dst.elements:
            rows = op.src.dims[op.axis] // op.group_size
            src = _divided(op, (op.group_size, 1), rows)
            build.move(src, _divided(op, (1, rows), rows), ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)))
        return build.program()


def _tables(op: Shuffle) -> tuple[list[int], list[int]]:
    """Return the kernel's tables: for each block of dst where its records begin and end, and the records."""
    channels = op.dst.dims[1]
    rows = channels // op.group_size
    ends: list[int] = []
    records: list[int] = []
    for first in range(0, channels, LANES):
        given = [
            channel % rows * op.group_size + channel // rows for channel in range(first, min(first + LANES, channels))
        ]
        ends.append(8 * len(records))
        for block in sorted({channel // LANES for channel in given}):
            lanes = [channel % LANES if channel // LANES == block else -1 for channel in given] + [-1] * (
                LANES - len(given)
            )
            bits = sum(1 << number for number, lane in enumerate(lanes) if lane >= 0)
            pairs = [max(low, 0) | max(high, 0) << 32 for low, high in zip(lanes[::2], lanes[1::2], strict=True)]
            records += [block, bits, *pairs]
        ends.append(8 * len(records))
    return ends, records


def _divided(op: Shuffle, steps: tuple[int, int], rows: int) -> MemoryDesc:
    """Return a view whose axis is (rows, group), one ``steps`` elements of the axis from the next."""
    own, at = op.src.outer_strides(), op.axis
    dims = (*op.src.dims[:at], rows, op.group_size, *op.src.dims[at + 1 :])
    strides = (*own[:at], *(own[at] * step for step in steps), *own[at + 1 :])
    return MemoryDesc(dims, op.src.dtype, strides=strides)


IMPLEMENTATIONS = (NativeShuffle(),)
