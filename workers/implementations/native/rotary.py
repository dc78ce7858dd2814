"""Rotary of f32, row-major."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, PrimitiveAttr, Rotary
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation

#: Elements of an item of work, about.
_ITEM: Final = 4096


class NativeRotary(NativeImplementation[Rotary]):
    """Rows, each rotated in vectors of 16 pairs."""

    name = "native:rotary"
    stays_inside = True

    def reject(self, op: Rotary, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        tensors = (op.src, op.cosine, op.sine, op.dst)
        if any(md.dtype != "f32" for md in tensors):
            return f"data types {', '.join(md.dtype for md in tensors)}; only f32 is supported"
        return None if all(md.is_plain for md in tensors) else "only row-major layouts are supported"

    def program(self, op: Rotary, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        *sizes, depth = op.dst.dims
        *given, pairs = op.cosine.dims
        # Rows of angles from row to row along each dimension, 0 if they are the same.
        steps = [0 if given[dim] == 1 else math.prod(given[dim + 1 :]) for dim in range(3)]
        rows = math.prod(sizes)
        together = max(1, min(_ITEM // depth, rows))
        kernel = KernelSpec.of("rotary", interleaved=op.interleaved)
        places: tuple[LaunchArgument, ...] = tuple(
            ("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.SRC_1, Arg.SRC_2, Arg.DST)
        )
        numbers = (rows, together, *sizes[1:], *steps, depth, pairs)
        return Program((kernel,), (Launch(0, (*places, *(("i", n) for n in numbers)), -(-rows // together)),))


IMPLEMENTATIONS = (NativeRotary(),)
