"""The memories of row-major deconvolutions: layouts that are chosen, and which given ones native kernels take. Pure."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Deconvolution, MemoryDesc, PrimitiveAttr
from .blocks import refuse
from .chain import refuse_chain

#: Spatial dimensions that kernels have.
SPATIAL: Final = 3


def row_major(op: Deconvolution, weights: MemoryDesc) -> Deconvolution:
    """Return a deconvolution with row-major memories, and weights in a layout, in place of those in any."""
    src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
    bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
    return replace(op, src=src, bias=bias, dst=dst, weights=weights if op.weights.is_any else op.weights)


def refuse_memories(op: Deconvolution, attr: PrimitiveAttr, dtypes: tuple[str, ...] = ("f32",)) -> str | None:
    """Return why kernels cannot take a deconvolution's memories and post-ops, or None: weights may have any layout."""
    if op.src.ndims - 2 > SPATIAL:
        return f"{op.src.ndims - 2} spatial dimensions; at most {SPATIAL} are supported"
    if not (op.src.is_plain and op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
        return "src, bias and dst must be row-major"
    dtype = op.dst.dtype
    if op.weights.dtype != dtype or (op.bias is not None and op.bias.dtype != dtype):
        return f"weights and bias must be {dtype}"
    return refuse(op.src, op.dst, dtypes=dtypes) or refuse_chain(attr, op.dst)


def refuse_depthwise(op: Deconvolution, attr: PrimitiveAttr) -> str | None:
    """Return why kernels of one input channel a group, which are dense and read row-major weights, cannot take it, or None."""
    if op.weights.dims[1] != 1 or any(op.dilations):
        return (
            f"{op.weights.dims[1]} input channels a group, dilations {op.dilations}; only one and dense are supported"
        )
    if not op.weights.is_plain:
        return "weights must be row-major"
    return refuse_memories(op, attr)
