"""Eltwise: every algorithm, forward and backward."""

from __future__ import annotations

import dataclasses

from ...desc import Arg, Eltwise, PrimitiveAttr
from ...engines.target import Target
from ...kernels.codes import ELTWISE
from ..native.blocks import follow
from ..program import LaunchArgument, Program
from .attributes import refuse_attributes
from .tables import Tables, as_float32


class ReferenceEltwise:
    """One element after another."""

    name = "ref:eltwise"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm == "round" and not op.is_forward:
            return "round has no gradient"
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Eltwise, attr: PrimitiveAttr, target: Target) -> Eltwise:
        src = follow(op.src, op.dst)
        op = dataclasses.replace(op, src=src, dst=follow(op.dst, src))
        if op.diff_src is None or op.diff_dst is None:
            return op
        diff_dst = follow(op.diff_dst, op.dst)
        return dataclasses.replace(op, diff_src=follow(op.diff_src, diff_dst), diff_dst=diff_dst)

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
