"""LSTM whose states are quantised before they are multiplied, of any data types of numbers and layouts."""

from __future__ import annotations

from ...desc import Arg, DynamicLstm, PrimitiveAttr
from ...engines.target import Target
from ..program import LaunchArgument, Program
from .implementation import ReferenceImplementation
from .tables import Tables

#: In the kernel's order.
_ARGUMENTS = (Arg.SRC, Arg.SRC_1, Arg.SRC_2, Arg.WEIGHTS, Arg.SCALE, Arg.SHIFT, Arg.DST, Arg.DST_1)
_TYPES = ("f64", "f32", "f16", "bf16")


class ReferenceDynamicLstm(ReferenceImplementation[DynamicLstm]):
    """One item for all: a state is quantised for all sequences together."""

    name = "ref:dynamic_lstm"

    def reject(self, op: DynamicLstm, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        for arg, md in op.memories().items():
            if arg not in (Arg.WEIGHTS, Arg.SHIFT) and md.dtype not in _TYPES:
                return f"data type {md.dtype}"
        return None

    def program(self, op: DynamicLstm, attr: PrimitiveAttr, target: Target) -> Program:
        tables, described = Tables(attr), op.memories()
        records: list[LaunchArgument] = [
            tables.tensor(arg, described[arg]) if arg in described else ("i", 0) for arg in _ARGUMENTS
        ]
        _, batch, _, hidden = op.src.dims
        # A state as numbers and as bytes less their zero point, and c: all float64.
        scratchpad = 3 * 8 * batch * hidden
        args = (*records, ("i", int(op.backwards)), ("s", 0))
        written = [(int(arg), described[arg]) for arg in op.outputs()]
        return tables.program("dynamic_lstm", args, 1, written, scratchpad=scratchpad)
