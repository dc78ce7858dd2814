"""Pooling, forward (with a workspace in training) and backward."""

from __future__ import annotations

from ...desc import Arg, Pooling, PrimitiveAttr
from ...engines.target import Target
from ...kernels.codes import POOLING
from ..program import LaunchArgument, Program
from .attributes import refuse_attributes
from .implementation import ReferenceImplementation
from .products import Window, window_table
from .tables import Tables


class ReferencePooling(ReferenceImplementation[Pooling]):
    """Any data types, layouts and number of spatial dimensions; a chain of post-ops."""

    name = "ref:pooling"

    def reject(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> str | None:
        if not attr.is_plain:
            return "pooling takes no scales or zero points"
        return refuse_attributes(op, attr, op.dst)

    def program(self, op: Pooling, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        described = op.memories()
        workspace: LaunchArgument = ("i", 0)
        if Arg.WORKSPACE in described:
            workspace = tables.tensor(Arg.WORKSPACE, described[Arg.WORKSPACE])
        geometry = zip(op.kernel, op.strides, op.dilations, op.padding_l, strict=True)
        window = window_table(tables, [Window(*values) for values in geometry])
        order = (Arg.SRC, Arg.DST) if op.is_forward else (Arg.DIFF_SRC, Arg.DIFF_DST)
        tensors = [tables.tensor(arg, described[arg]) for arg in order]
        written = [(arg, described[arg]) for arg in op.outputs()]
        end = op.dst if op.is_forward else op.src
        args = (*tensors, workspace, tables.chain(end), window, ("i", POOLING[op.algorithm]))
        if op.is_forward:
            return tables.program("pooling", args, end.elements, written)
        return tables.program("pooling_backward", args, end.elements, written)
