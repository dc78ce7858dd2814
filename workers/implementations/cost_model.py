"""The cost model: the time of one execution of a primitive on one thread, estimated from its descriptor.

`threadpools.jobs` cuts launches into jobs by it, for which a factor of three is near enough. The times were measured on
one core of a server with AVX-512, on problems within and beyond a core's own cache; those of memory are a little longer,
as on a smaller machine. Products on vectors of 256 bits have a time of their own, measured on a core with AVX2.
`benchmarks/estimates.py` prints how near they are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ..desc import Arg, OpDesc
from .contract import REFERENCE

if TYPE_CHECKING:
    from .primitive_desc import PrimitiveDesc

#: Nanoseconds for a byte that is read or written, and for a multiplication with its addition.
_BYTE: Final = 0.03
_PRODUCT: Final = 0.012
#: For the latter on an ISA level without vectors of 512 bits.
_PRODUCT_IN_256_BITS: Final = 0.02
#: The same of reference implementations, which take one element after another.
_REFERENCE_BYTE: Final = 7.0
_REFERENCE_PRODUCT: Final = 6.0
#: Operations that compute more for each element: nanoseconds for a byte. What a call computes is unknown.
_BYTES: Final = {"softmax": 0.05, "lrn": 0.1, "pooling": 0.05, "cumulative_sum": 0.06, "rotary": 0.02, "call": 1.0}
#: The same of algorithms, and of implementations.
_ALGORITHMS: Final = {
    ("eltwise", "gelu_erf"): 0.09,
    ("eltwise", "gelu_tanh"): 0.06,
    ("eltwise", "erf"): 0.1,
    **dict.fromkeys([("eltwise", name) for name in ("log", "sin", "cos", "tan")], 0.08),
    ("eltwise", "softplus"): 0.16,
    ("eltwise", "elu"): 0.05,
    ("eltwise", "mish"): 0.05,
    ("binary", "pow"): 0.15,
    ("grid_sample", "nearest"): 0.08,
    ("grid_sample", "linear"): 0.15,
    ("grid_sample", "cubic"): 0.8,
    ("roi_align", "mean"): 0.3,
    ("roi_align", "max"): 0.3,
    ("resampling", "linear"): 0.04,
    ("resampling", "cubic"): 0.25,
}
#: Nanoseconds for an element that an index of its own chooses, in addition; for a byte of what several elements are chosen of.
_CHOSEN: Final = 0.6
_RANKED: Final = 0.2
_IMPLEMENTATIONS: Final = {"native:quantised_eltwise": 0.15, "native:quantised_binary": 0.06, "native:byte_sums": 0.06}
#: Functions of other floats than float32: times as long for a byte. Those of 16 bits are computed in float32.
_FLOATS: Final = {"f16": 2.0, "bf16": 2.0, "f64": 2.0}
_REFERENCE_BYTES: Final = {"lrn": 50.0}
#: Nanoseconds for a node of a decision tree that a row visits; half of the rows end before the deepest level.
_VISIT: Final = 1.0
_REFERENCE_VISIT: Final = 60.0
#: Nanoseconds for a pivot of a determinant, whatever it divides, and for an element that is less a product of each.
_PIVOT: Final = 45.0
_ELIMINATED: Final = 0.035


def nanoseconds(pd: PrimitiveDesc) -> int:
    """Return the estimated time of one execution on one thread."""
    slow = pd.implementation.name.startswith(REFERENCE)
    memories = pd.memories()
    moved = sum(desc.nbytes for desc in memories.values())
    if pd.op.kind == "gather":  # of src, it reads no more than it writes
        moved += min(0, memories[Arg.DST].nbytes - memories[Arg.SRC].nbytes)
    if pd.op.kind == "tree_leaves":
        visits = memories[Arg.DST].elements * getattr(pd.op, "levels", 1)
        return int(visits * (_REFERENCE_VISIT if slow else _VISIT))
    if pd.op.kind == "determinant" and not slow:
        matrices, rows, _ = memories[Arg.SRC].dims
        return int(matrices * rows * (_PIVOT + _ELIMINATED * rows * rows))
    by_byte = _REFERENCE_BYTES.get(pd.op.kind, _REFERENCE_BYTE) if slow else _of_bytes(pd)
    by_product = _REFERENCE_PRODUCT if slow else _of_product(pd)
    return int(moved * by_byte + products(pd.op) * by_product + _of_indices(pd.op))


def _of_product(pd: PrimitiveDesc) -> float:
    is_narrow = pd.target.engine_kind == "cpu" and not pd.target.isa_at_least("x86-64-v4")
    return _PRODUCT_IN_256_BITS if is_narrow else _PRODUCT


def _of_indices(op: OpDesc) -> float:
    """Return the nanoseconds of the elements that indices choose one by one."""
    if op.kind != "gather":
        return 0.0
    memories = op.memories()
    last = getattr(op, "axis", 0) == memories[Arg.SRC].ndims - 1
    is_each = {"elements": True, "rows": last}.get(getattr(op, "algorithm", ""), False)
    return _CHOSEN * memories[Arg.DST].elements if is_each else 0.0


def _of_bytes(pd: PrimitiveDesc) -> float:
    """Return the nanoseconds for a byte of an implementation that is made for speed."""
    op = pd.op
    found = _BYTES.get(op.kind, _BYTE)
    found = _ALGORITHMS.get((op.kind, getattr(op, "algorithm", "")), found)
    found = _IMPLEMENTATIONS.get(pd.implementation.name, found)
    if op.kind == "eltwise":
        found *= _FLOATS.get(next(iter(pd.memories().values())).dtype, 1.0)
    if op.kind == "top_k" and getattr(op, "k", 1) > 1:
        found = _RANKED
    if op.kind == "pooling":  # an element is in so many windows; nine or fewer take as long
        windows = math.prod(getattr(op, "kernel", ())) / math.prod(getattr(op, "strides", ()))
        found *= max(1.0, math.sqrt(windows) / 3)
    return found


def products(op: OpDesc) -> int:
    """Return how many pairs of numbers an operation multiplies and adds up; 0 for one that sums no products."""
    memories = op.memories()
    if op.kind == "attention":
        query, key, value = (memories[arg].dims for arg in (Arg.SRC, Arg.SRC_1, Arg.SRC_2))
        return math.prod(query[:3]) * key[2] * (key[3] + value[3])
    if op.kind == "determinant":
        return memories[Arg.SRC].elements * memories[Arg.SRC].dims[1] // 3
    weights = memories.get(Arg.WEIGHTS) or memories.get(Arg.DIFF_WEIGHTS)
    if weights is None or op.kind in ("prelu", "tree_leaves"):
        return 0
    src, dst = getattr(op, "src", None), getattr(op, "dst", None)
    if op.kind == "matmul_nbits":
        return dst.elements * src.dims[1] if dst and src else 0
    if op.kind == "matmul":
        return dst.elements * weights.dims[-2] if dst else 0
    if op.kind == "inner_product":
        return src.dims[0] * weights.elements if src else 0
    if op.kind == "convolution":
        return dst.elements * math.prod(weights.dims[1:]) if dst else 0
    if op.kind == "deconvolution":
        return src.elements * math.prod(weights.dims[1:]) * weights.dims[0] // src.dims[1] if src else 0
    steps, batch = memories[Arg.SRC].dims[:2]
    deep = memories.get(Arg.WEIGHTS_1)
    return steps * batch * (weights.elements + (deep.elements if deep else 0))
