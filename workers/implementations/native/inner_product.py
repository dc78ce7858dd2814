"""Inner product: a matrix product with transposed weights, each weight read once for all rows of a small batch."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import InnerProduct, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ..contract import Implementation
from ..program import Program
from .bfloat_product import NativeAmxBFloatInnerProduct, NativeBFloatInnerProduct
from .blocks import refuse
from .convolution_chain import refuse_bounded
from .product import describe, has_few_columns
from .product_shape import Shape

#: 16 outputs side by side.
_PACKED = "Ab16a"
#: A layout of (OC, IC) -> the same layout, named for the transposed matrix (IC, OC).
_TRANSPOSED = {"Ab16a": "Ba16b", "ab": "ba", "ba": "ab"}


class NativeInnerProduct:
    """Row-major src and dst, weights in any layout; relu and one addition as post-ops."""

    name = "native:tiles"
    engine_kind = "cpu"
    general = False

    def reject(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if not (op.src.is_plain and op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "src, bias and dst must be row-major"
        if op.weights.tag not in _TRANSPOSED:
            return f"weights layout {op.weights.tag}; known: {', '.join(_TRANSPOSED)}"
        if op.weights.dtype != "f32" or (op.bias is not None and op.bias.dtype != "f32"):
            return "weights and bias must be f32"
        return refuse(op.src, op.dst) or refuse_bounded(attr, op.dst)

    def complete(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> InnerProduct:
        few = has_few_columns(op.src.dims[0], op.weights.dims[1], op.weights.dims[0]) if op.src.ndims == 2 else False
        weights = op.weights.with_tag("ab" if few else _PACKED) if op.weights.is_any else op.weights
        src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        return replace(op, src=src, weights=weights, bias=bias, dst=dst)

    def program(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> Program:
        outputs, inputs = op.weights.dims
        right = MemoryDesc((inputs, outputs), op.weights.dtype, _TRANSPOSED[op.weights.tag])
        shape = Shape(op.src.dims[0], inputs, outputs, (((), ()),))
        return describe(shape, op.src, right, op.bias is not None, attr, target.isa)


# First: with an fpmath mode, bfloat16 takes products of f32 too.
IMPLEMENTATIONS = (NativeAmxBFloatInnerProduct(), NativeBFloatInnerProduct(), NativeInnerProduct())


def find_further_implementations() -> tuple[Implementation[InnerProduct], ...]:
    """Return those of other data types and layouts, which most processes need not import."""
    from ..nested.inner_product import NestedInnerProduct
    from .integer_packed import NativePackedInnerProduct
    from .narrow_matmul import NativeNarrowInnerProduct

    packed = tuple(NativePackedInnerProduct(how) for how in ("amx", "vnni", "bytes", "pairs"))
    return (NativeNarrowInnerProduct(), *packed, NestedInnerProduct("cpu"))
