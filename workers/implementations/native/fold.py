"""Blocks of an image, added up at their places in f32 and f64, row-major."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, Fold, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import refuse_but_row_major_floats
from .implementation import NativeImplementation

#: Bytes of a strip of rows, which stay in the first-level cache, with what is added to them.
_STRIP: Final = 16 << 10
#: Items of work at least, if there are as many rows: each has a share of them.
_ITEMS: Final = 16


class NativeFold(NativeImplementation[Fold]):
    """Strips of rows of an image, to which the rows of one element of all blocks after another are added."""

    name = "native:fold"

    def reject(self, op: Fold, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        return refuse_but_row_major_floats(op.src, op.dst)

    def program(self, op: Fold, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        count, size = op.dst.ndims - 2, item_size(op.dst.dtype)
        planes = math.prod(op.dst.dims[:2])

        def three(given: tuple[int, ...], missing: int) -> tuple[int, ...]:
            return (*(missing,) * (3 - count), *given)

        image, kernel = three(op.dst.dims[2:], 1), three(op.src.dims[2 : 2 + count], 1)
        positions, strides = three(op.src.dims[2 + count :], 1), three(op.strides, 1)
        apart = tuple(dilation + 1 for dilation in three(op.dilations, 0))
        depth, height, width = image
        stride = strides[2]
        columns = -(-width // stride)
        strip = max(1, min(_STRIP // (width * size), -(-height * planes * depth // _ITEMS), height))
        strips = -(-height // strip)
        strip = -(-height // strips)
        room = -(-strip * stride * columns * size // 64) * 64 if stride > 1 else 0
        work = planes * depth * strips
        numbers = (
            room, planes, *image, *kernel, *positions, *strides, *apart, *three(op.padding_l, 0), strip, strips, columns,
        )  # fmt: skip
        places: tuple[LaunchArgument, ...] = (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), ("s", 0))
        spec = KernelSpec.of("fold_strips", dtype=op.dst.dtype, phases=stride if stride in (1, 2, 4) else 0)
        args = (*places, *(("i", number) for number in numbers))
        return Program((spec,), (Launch(0, args, work),), b"", work * room)


IMPLEMENTATIONS = (NativeFold(),)
