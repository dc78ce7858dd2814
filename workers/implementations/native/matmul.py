"""Matmul: register tiles over packed rows and columns; constant weights are packed once, by the reorder asked for."""

from __future__ import annotations

import dataclasses

from ...desc import Matmul, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .blocks import refuse
from .convolution_chain import refuse_bounded
from .integer_product import NativeIntegerMatmul
from .product import Shape, describe, packed_tag


class NativeMatmul:
    """Row-major src and dst, weights packed or in any permuted layout; relu and one addition as post-ops."""

    name = "native:tiles"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        if not op.bias_is_row:
            return f"bias {op.bias}; only one value a column is supported"
        op = self.complete(op, attr, target)
        if not (op.src.is_plain and op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "src, bias and dst must be row-major"
        if op.weights.tag != packed_tag(op.weights.ndims) and op.weights.layout.blocks:
            return f"weights layout {op.weights.tag}"
        if op.weights.dtype != "f32" or (op.bias is not None and op.bias.dtype != "f32"):
            return "weights and bias must be f32"
        return refuse(op.src, op.dst) or refuse_bounded(attr, op.dst)

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        weights = op.weights.with_tag(packed_tag(op.weights.ndims)) if op.weights.is_any else op.weights
        src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        return dataclasses.replace(op, src=src, weights=weights, bias=bias, dst=dst)

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        return describe(Shape.broadcast(op.src, op.weights, op.dst), op.weights, op.bias is not None, attr, target.isa)


IMPLEMENTATIONS = (NativeMatmul(), NativeIntegerMatmul("vnni"), NativeIntegerMatmul("pairs"))
