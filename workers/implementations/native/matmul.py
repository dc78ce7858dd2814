"""Matmul: register tiles over rows and columns; constant weights are packed once, by the reorder asked for."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Matmul, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ..contract import Implementation
from ..inference import refuse_beyond_inference
from ..program import Program
from .bfloat_product import NativeAmxBFloatMatmul, NativeBFloatMatmul
from .blocks import refuse
from .convolution_chain import refuse_bounded
from .product import describe, has_few_columns, refuse_left
from .product_shape import Shape, packed_tag, transposed_tag


class NativeMatmul:
    """Src with adjacent elements in rows or in columns, weights packed or in any other layout without blocks, row-major dst.

    Src and weights may have strides. Relu and one addition as post-ops.
    """

    name = "native:tiles"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> str | None:
        dense = replace(op, src=_without_strides(op.src), weights=_without_strides(op.weights))
        if beyond := refuse_beyond_inference(dense, attr):
            return beyond
        if op.src.repeats or op.weights.repeats:
            return "strides that repeat elements are not supported"
        if not op.bias_is_row:
            return f"bias {op.bias}; only one value a column is supported"
        op = self.complete(op, attr, target)
        if not (op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "bias and dst must be row-major"
        if op.weights.tag != packed_tag(op.weights.ndims) and op.weights.layout.blocks:
            return f"weights layout {op.weights.tag}"
        if op.weights.dtype != "f32" or (op.bias is not None and op.bias.dtype != "f32"):
            return "weights and bias must be f32"
        return refuse(op.src, op.dst) or refuse_left(op.src) or refuse_bounded(attr, op.dst)

    def complete(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Matmul:
        weights = op.weights
        if weights.is_any:
            tag = packed_tag(weights.ndims)
            if has_few_columns(op.src.dims[-2], *weights.dims[-2:]):
                tag = transposed_tag(weights.ndims)
            weights = weights.with_tag(tag)
        src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        return replace(op, src=src, weights=weights, bias=bias, dst=dst)

    def program(self, op: Matmul, attr: PrimitiveAttr, target: Target) -> Program:
        shape = Shape.broadcast(op.src, op.weights, op.dst)
        return describe(shape, op.src, op.weights, op.bias is not None, attr, target.isa)


def _without_strides(md: MemoryDesc) -> MemoryDesc:
    return md.with_tag("") if md.strides else md


# First: with an fpmath mode, bfloat16 takes products of f32 too.
IMPLEMENTATIONS = (NativeAmxBFloatMatmul(), NativeBFloatMatmul(), NativeMatmul())


def find_further_implementations() -> tuple[Implementation[Matmul], ...]:
    """Return those of other data types, which most processes need not import."""
    from .integer_batch import NativeIntegerBatch
    from .integer_packed import NativePackedMatmul
    from .integer_product import NativeIntegerMatmul
    from .narrow_matmul import NativeNarrowMatmul
    from .typed_product import NativeTypedMatmul

    amx, vnni, by_bytes, pairs = (NativePackedMatmul(how) for how in ("amx", "vnni", "bytes", "pairs"))
    integers = NativeIntegerMatmul("vnni"), NativeIntegerMatmul("pairs")
    batches = NativeIntegerBatch("vnni"), NativeIntegerBatch("pairs")
    # By weights without sign, VNNI multiplies four numbers in the time of two, which is worth packing them in each run.
    return (NativeTypedMatmul(), NativeNarrowMatmul(), amx, vnni, by_bytes, batches[0], pairs, *integers, batches[1])
