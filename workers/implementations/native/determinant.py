"""Determinants of f32 and f64, row-major: matrices are copied and eliminated in float64."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, Determinant, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.native.limits import PANEL
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import refuse_but_row_major_floats
from .implementation import NativeImplementation

#: Items of work at most: each has room for a matrix in the scratchpad.
_ITEMS: Final = 64


class NativeDeterminant(NativeImplementation[Determinant]):
    """Eight columns at a time."""

    name = "native:determinant"

    def reject(self, op: Determinant, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        return refuse_but_row_major_floats(op.src, op.dst)

    def program(self, op: Determinant, attr: PrimitiveAttr, target: Target) -> Program:
        count, rows, _ = op.src.dims
        if count == 0:
            return Program((), ())
        # Kernels read 16 columns from each eighth one on.
        step = -(-rows // PANEL) * PANEL + PANEL
        room = rows * step * item_size("f64")
        together = -(-count // _ITEMS)
        work = -(-count // together)
        numbers = (room, count, together, rows, step)
        places: tuple[LaunchArgument, ...] = (("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), ("s", 0))
        args = (*places, *(("i", number) for number in numbers))
        kernel = KernelSpec.of("determinant", dtype=op.src.dtype)
        return Program((kernel,), (Launch(0, args, work),), b"", work * room + 64)


IMPLEMENTATIONS = (NativeDeterminant(),)
