"""Eltwise: every algorithm, forward and backward."""

from __future__ import annotations

from ...desc import Arg, Eltwise, PrimitiveAttr
from ...desc.attributes import STEP_ALGORITHMS
from ...engines.target import Target
from ...kernels.codes import ELTWISE
from ..layouts import complete_layouts
from ..program import LaunchArgument, Program
from .attributes import refuse_attributes
from .implementation import ReferenceImplementation
from .tables import Tables, as_float32


class ReferenceEltwise(ReferenceImplementation[Eltwise]):
    """One element after another."""

    name = "ref:eltwise"

    def reject(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm in STEP_ALGORITHMS and not op.is_forward:
            return f"{op.algorithm} has no gradient"
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Eltwise:
        return complete_layouts(op, ("src", "dst", "diff_dst", "diff_src"))

    def program(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        algorithm: LaunchArgument = ("i", ELTWISE[op.algorithm])
        parameters: tuple[LaunchArgument, ...] = (("f", as_float32(op.alpha)), ("f", as_float32(op.beta)))
        args: tuple[LaunchArgument, ...]
        if op.diff_src is None or op.diff_dst is None:
            args = (tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst), algorithm)
            return tables.program("eltwise", (*args, *parameters), op.dst.elements, [(Arg.DST, op.dst)])
        data = tables.tensor(Arg.DST, op.dst) if op.use_dst else tables.tensor(Arg.SRC, op.src)
        gradients = tables.tensor(Arg.DIFF_DST, op.diff_dst), tables.tensor(Arg.DIFF_SRC, op.diff_src)
        args = (data, *gradients, tables.chain(op.diff_src), algorithm, ("i", int(op.use_dst)), *parameters)
        return tables.program("eltwise_backward", args, op.src.elements, [(Arg.DIFF_SRC, op.diff_src)])
