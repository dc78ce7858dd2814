"""Matmul of any data types, layouts and attributes."""

from __future__ import annotations

from ...desc import Arg, Matmul, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .products import Tensor, factor
from .tables import Tables


class ReferenceMatmul(ReferenceImplementation[Matmul]):
    """One element of dst a work item."""

    name = "ref:matmul"

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        tables = Tables(attr)
        *batch, rows, columns = op.dst.dims
        depth, axes = op.src.dims[-1], range(len(batch))
        dst = Tensor(Arg.DST, op.dst, op.dst.dims)
        src, src_scales = factor(
            tables, attr, Tensor(Arg.SRC, op.src, (*batch, rows, depth)), dst, (*axes, len(batch), -1)
        )  # fmt: skip
        weights, weights_scales = factor(
            tables, attr, Tensor(Arg.WEIGHTS, op.weights, (*batch, depth, columns)), dst, (*axes, -1, len(batch) + 1)
        )
        added = [tables.add(Arg.BIAS, op.bias, op.dst.dims, range(op.dst.ndims))] if op.bias is not None else []
        chain = tables.chain(op.dst, (src_scales, weights_scales, *added))
        args = (src, weights, tables.tensor(Arg.DST, op.dst), chain)
        return tables.program("matmul", args, op.dst.elements, [(Arg.DST, op.dst)])
