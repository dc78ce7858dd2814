"""Inner product on matmul, in every propagation kind: dimensions that are summed over are one in memory."""

from __future__ import annotations

import math

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, InnerProduct, Matmul, MemoryDesc, PrimitiveAttr
from ...engines.target import EXTENSIONS, Target
from ..primitive_desc import UnsupportedPrimitive
from ..program import Program
from .builder import NestedBuilder, nested_attributes
from .layouts import collapsed, expanded, inner_order, transposed
from .product import (
    MatrixView,
    NotNested,
    Operand,
    add_rows,
    bias_row,
    fast_matmul,
    multiply,
    places,
    refuse_types,
    transposed_attributes,
)


class NestedInnerProduct:
    """Any layouts: a tensor that is no matrix is reordered. Data types and attributes are those of fast products."""

    name = "nested:matmul"
    general = True
    nests = True
    extensions = tuple(EXTENSIONS)

    def __init__(self, engine_kind: str) -> None:
        self.engine_kind = engine_kind

    def reject(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> str | None:
        why = refuse_types(op, attr, target)
        if why is not None:
            return why
        try:
            self.program(self.complete(op, attr, target), attr, target)
        except (NotNested, UnsupportedPrimitive) as error:
            return str(error)
        return None

    def complete(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> InnerProduct:
        src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        weights, inner = op.weights, inner_order(src)
        if weights.is_any:
            right = MemoryDesc((math.prod(src.dims[1:]), weights.dims[0]), weights.dtype, "any")
            if op.is_forward:
                rows = MemoryDesc((src.dims[0], right.dims[0]), src.dtype)
                product = Matmul(rows, right, bias and bias_row(bias), dst)
                right = fast_matmul(product, transposed_attributes(nested_attributes(attr)), target).op.memories()[
                    Arg.WEIGHTS
                ]
            else:
                right = right.with_tag("ba")
            weights = expanded(transposed(right), weights.dims, inner)
        return replace(op, src=src, weights=weights, bias=bias, dst=dst)

    def program(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestedBuilder(target)
        src, weights, bias, dst = places(op.prop)
        result = Operand(op.dst, dst)
        # The result, or else the tensor that is larger in most networks, needs no reorder.
        inner = inner_order(op.weights if op.prop == "backward_weights" else op.src)
        rows, outputs = _seen(op.src, inner), _seen(op.weights, inner)
        if op.is_forward:
            if any(item.arg == Arg.SRC and item.mask > 1 for item in attr.zero_points):
                raise NotNested("zero points of src that vary along dimensions that are summed over")
            row = None if op.bias is None else Operand(bias_row(op.bias), bias)
            right = outputs.read(build, weights).transposed()
            multiply(build, rows.read(build, src), right, row, result, transposed_attributes(attr))
        elif op.prop == "backward_data":
            with rows.written(build, src) as to:
                multiply(build, result, outputs.read(build, weights), None, to, attr)
        else:
            with outputs.written(build, weights) as to:
                multiply(build, result.transposed(), rows.read(build, src), None, to, attr)
            if op.bias is not None:
                add_rows(build, result, Operand(bias_row(op.bias), bias))
        return build.program()


def _seen(md: MemoryDesc, inner: tuple[int, ...]) -> MatrixView:
    """Return a tensor as a matrix, in place if possible, else with the order ``inner`` in each row."""
    found = collapsed(md, inner)
    if found is not None:
        return MatrixView(md, md, found)
    rows = MemoryDesc((md.dims[0], math.prod(md.dims[1:])), md.dtype)
    return MatrixView(md, expanded(rows, md.dims, inner), rows)
