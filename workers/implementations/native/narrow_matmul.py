"""Matmul and inner product with factors of f16 or bf16 on every level: summed in float32, each result rounded once."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import InnerProduct, Matmul, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ..inference import refuse_beyond_inference
from ..program import Program
from .convolution_chain import refuse_bounded
from .narrow_product import describe_narrow
from .product_shape import Shape, packed_tag

_TYPES: Final = ("f32", "f16", "bf16")
#: A layout of weights (OC, IC) -> the same layout, named for the transposed matrix (IC, OC).
_TRANSPOSED: Final = {"Ab16a": "Ba16b", "ab": "ba", "ba": "ab"}


class _NarrowProduct:
    """What both operations share: factors, bias and dst of f32, f16 or bf16, but not all of f32."""

    name = "native:narrow_tiles"
    engine_kind = "cpu"
    general = True

    def _refuse(self, op: Matmul | InnerProduct, attr: PrimitiveAttr) -> str | None:
        """Return why a product with all layouts chosen is not supported, or None."""
        kinds = [md.dtype for md in (op.src, op.weights, op.dst, op.bias) if md is not None]
        if not {*kinds} <= {*_TYPES} or {*kinds} == {"f32"}:
            return f"data types {', '.join(kinds)}; expect {', '.join(_TYPES)}, and not only f32"
        dense = replace(op, src=_without_strides(op.src), weights=_without_strides(op.weights))
        if beyond := refuse_beyond_inference(dense, attr):
            return beyond
        if op.src.repeats or op.weights.repeats:
            return "strides that repeat elements are not supported"
        if not (op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "bias and dst must be row-major"
        return refuse_bounded(attr, op.dst)


class NativeNarrowMatmul(_NarrowProduct):
    """src in any layout, weights packed or in any layout without blocks, row-major dst. Relu and one addition as post-ops."""

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        if not op.bias_is_row:
            return f"bias {op.bias}; only one value a column is supported"
        op = self.complete(op, attr, target)
        if op.weights.tag != packed_tag(op.weights.ndims) and op.weights.layout.blocks:
            return f"weights layout {op.weights.tag}"
        return self._refuse(op, attr)

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        weights = op.weights.with_tag(packed_tag(op.weights.ndims)) if op.weights.is_any else op.weights
        bias = op.bias and _row_major(op.bias)
        return replace(op, src=_row_major(op.src), weights=weights, bias=bias, dst=_row_major(op.dst))

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        shape = Shape.broadcast(op.src, op.weights, op.dst)
        return describe_narrow(shape, op.src, op.weights, op.bias, op.dst.dtype, attr, target.isa)


class NativeNarrowInnerProduct(_NarrowProduct):
    """The same for src of rank 2 and weights (outputs, inputs), forward."""

    def reject(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> str | None:
        if not op.is_forward or op.src.ndims != 2:
            return "only forward of rank 2 is supported"
        op = self.complete(op, attr, target)
        if op.weights.tag not in _TRANSPOSED:
            return f"weights layout {op.weights.tag}; known: {', '.join(_TRANSPOSED)}"
        return self._refuse(op, attr)

    def complete(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> InnerProduct:
        weights = op.weights.with_tag("Ab16a") if op.weights.is_any else op.weights
        bias = op.bias and _row_major(op.bias)
        return replace(op, src=_row_major(op.src), weights=weights, bias=bias, dst=_row_major(op.dst))

    def program(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> Program:
        outputs, inputs = op.weights.dims
        right = MemoryDesc((inputs, outputs), op.weights.dtype, _TRANSPOSED[op.weights.tag])
        shape = Shape(op.src.dims[0], inputs, outputs, (((), ()),))
        return describe_narrow(shape, op.src, right, op.bias, op.dst.dtype, attr, target.isa)


def _row_major(md: MemoryDesc) -> MemoryDesc:
    return md.with_tag("") if md.is_any else md


def _without_strides(md: MemoryDesc) -> MemoryDesc:
    return md.with_tag("") if md.strides else md
