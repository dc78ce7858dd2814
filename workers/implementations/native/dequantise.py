"""Reorder of integers to f32 with scales and zero points of the source: one, or one for each index of some dimensions."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, PrimitiveAttr, Reorder
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, Program
from .integer_epilogue import Epilogue
from .quantised_rows import rows_of

_WHOLE: Final = ("s8", "u8", "s16", "u16", "s32")


class NativeDequantise:
    """Integers less their zero points, times their scales, in one layout without padding.

    Scales differ along dimensions that are neighbours in memory, or such that have one run of others between them, as blocks
    have; zero points, which s32 does not have, along the same dimensions, or there is one of them.
    """

    name = "native:dequantise"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.is_cross_engine or attr.post_ops or op.wraps:
            return "only reorders within one engine, without post-ops, that saturate are supported"
        if op.src.dtype not in _WHOLE or op.dst.dtype != "f32":
            return f"data types {op.src.dtype} and {op.dst.dtype}; only {', '.join(_WHOLE)} to f32 are supported"
        if any(item.arg != Arg.SRC for item in (*attr.scales, *attr.zero_points)):
            return "only scales and zero points of src are supported"
        if attr.zero_points and op.src.dtype == "s32":
            return "zero points of s32 are not supported"
        if op.src.tag != op.dst.tag or any(md.strides or md.padded_dims != md.dims for md in (op.src, op.dst)):
            return f"{op.src} and {op.dst}; only one layout without padding is supported"
        mask = _mask(attr)
        if any(item.mask not in (0, mask) for item in (*attr.scales, *attr.zero_points)):
            return "zero points that differ along other dimensions than the scales"
        if rows_of(op.dst, _dims(mask)) is None:
            return f"scales with mask {mask:#x} of {op.src}"
        return None

    def complete(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Reorder:
        return op

    def program(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Program:
        rows = rows_of(op.dst, _dims(_mask(attr)))
        if math.prod(op.dst.dims) == 0 or rows is None:
            return Program((), ())
        epilogue = Epilogue.of(PrimitiveAttr((), attr.scales, attr.zero_points), op.dst)
        scales, points = (
            rows.along if any(item.mask for item in items) else "one" if items else ""
            for items in (attr.scales, attr.zero_points)
        )
        kernel = KernelSpec.of("dequantise", dtype=op.src.dtype, scales=scales, points=points)
        places = (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), epilogue.scale(Arg.SRC), epilogue.point(Arg.SRC))
        return Program((kernel,), (Launch(0, (*places, *rows.numbers()), rows.work),), epilogue.tables)


def _mask(attr: PrimitiveAttr) -> int:
    return max((item.mask for item in (*attr.scales, *attr.zero_points)), default=0)


def _dims(mask: int) -> list[int]:
    return [dim for dim in range(mask.bit_length()) if mask >> dim & 1]
