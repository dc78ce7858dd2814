"""Quantisation of f32 by the range of a tensor: one pass over it for the range, one for the bytes."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, DynamicQuantise, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation
from .integer_epilogue import NONE
from .quantised_rows import CHUNK, Rows

#: Elements of one item of work of the pass for the range.
_CHUNK: Final = 16384


class NativeDynamicQuantise(NativeImplementation[DynamicQuantise]):
    """Layouts without padding; src and dst have one layout."""

    name = "native:dynamic_quantise"

    def reject(self, op: DynamicQuantise, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != "f32":
            return f"data type {op.src.dtype}; only f32 is supported"
        for md in (op.src, op.dst):
            if md.strides or md.padded_dims != md.dims or md.tag != op.dst.tag:
                return f"{md}; only one layout without padding is supported"
        return None

    def program(self, op: DynamicQuantise, attr: PrimitiveAttr, target: Target) -> Program:
        count = op.dst.elements
        parts = -(-count // _CHUNK)
        # A range is two floats; behind them is the zero point as s32.
        point: LaunchArgument = ("s", 8 * parts)
        src, dst, scale, stored = (("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.DST, Arg.DST_1, Arg.DST_2))
        ranges, numbers = KernelSpec.of("tensor_range"), KernelSpec.of("range_scale", point=op.zero_point.dtype)
        bytes_ = KernelSpec.of("quantise", first="f32", second="", result="u8", rounds=True, along="", points=False)
        whole = Rows("", CHUNK, count)
        launches = [
            Launch(0, (src, ("s", 0), ("i", count), ("i", _CHUNK)), parts),
            Launch(1, (("s", 0), ("i", parts), scale, stored, point), 1),
            Launch(
                2, (src, NONE, dst, *(NONE,) * 4, scale, point, *whole.numbers(), ("f", -math.inf), ("f", 0.0), ("f", 0.0)),
                whole.work,
            ),
        ]  # fmt: skip
        kernels = (ranges, numbers, bytes_)
        if count == 0:
            return Program((numbers,), (Launch(0, launches[1].args, 1),), b"", 64)
        return Program(kernels, tuple(launches), b"", 8 * parts + 64)


IMPLEMENTATIONS = (NativeDynamicQuantise(),)
