"""Softmax and its logarithm along any axis, forward and backward."""

from __future__ import annotations

import dataclasses
import math

from ...desc import Arg, PrimitiveAttr, Softmax
from ...engines.target import Target
from ..native.blocks import follow
from ..program import LaunchArgument, Program
from .attributes import refuse_attributes
from .tables import Tables


class ReferenceSoftmax:
    """One row along the axis after another."""

    name = "ref:softmax"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> Softmax:
        src = follow(op.src, op.dst)
        op = dataclasses.replace(op, src=src, dst=follow(op.dst, src))
        if op.diff_src is None or op.diff_dst is None:
            return op
        diff_dst = follow(op.diff_dst, op.dst)
        return dataclasses.replace(op, diff_src=follow(op.diff_src, diff_dst), diff_dst=diff_dst)

    def program(self, op: Softmax, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        size, inner = op.dst.dims[op.axis], math.prod(op.dst.dims[op.axis + 1 :])
        numbers: tuple[LaunchArgument, ...] = (("i", size), ("i", inner), ("i", int(op.algorithm == "log")))
        rows = op.dst.elements // size
        dst = tables.tensor(Arg.DST, op.dst)
        if op.diff_src is None or op.diff_dst is None:
            args = (tables.tensor(Arg.SRC, op.src), dst, tables.chain(op.dst), *numbers)
            return tables.program("softmax", args, rows, [(Arg.DST, op.dst)])
        gradients = tables.tensor(Arg.DIFF_DST, op.diff_dst), tables.tensor(Arg.DIFF_SRC, op.diff_src)
        args = (dst, *gradients, tables.chain(op.diff_src), *numbers)
        return tables.program("softmax_backward", args, rows, [(Arg.DIFF_SRC, op.diff_src)])
