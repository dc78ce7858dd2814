"""Operations whose elements are chosen by other tensors."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc

from ..shapes import broadcast
from .result import Attrs, Operation, describe_result


def gather(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe what indices choose."""
    from poolrt.workers.desc.operations.gather import gathered_dims

    src, indices = srcs
    chosen = attrs.get("algorithm", "rows"), attrs.get("axis", 0), attrs.get("batch_dims", 0)
    return op(src, indices, describe_result(src, dtype, gathered_dims(src, indices, *chosen)), **attrs)


def scatter(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe updates at indices."""
    src, indices, updates = srcs
    return op(src, indices, updates, describe_result(src, dtype), **attrs)


def select(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the choice between two tensors by a condition, all of one rank."""
    condition, src0, src1 = srcs
    dims = condition.dims
    for name, each in (("src0", src0), ("src1", src1)):
        if each.ndims != condition.ndims:
            raise ValueError(f"{name}: expect rank {condition.ndims}, got {each.ndims}")
        try:
            dims = broadcast(dims, each.dims)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return op(condition, src0, src1, describe_result(src0, dtype, dims), **attrs)


def arg_reduction(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe where elements along an axis are; indices are s64 by default."""
    (src,) = srcs
    dims = tuple(1 if dim == attrs["axis"] else size for dim, size in enumerate(src.dims))
    return op(src, MemoryDesc(dims, dtype or "s64"), **attrs)


def top_k(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the best elements along an axis, and their indices of s64."""
    (src,) = srcs
    dims = tuple(attrs["k"] if dim == attrs["axis"] else size for dim, size in enumerate(src.dims))
    return op(src, describe_result(src, dtype, dims), MemoryDesc(dims, "s64"), **attrs)


def non_max_suppression(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe chosen boxes as rows of three indices of s64 by default, and their number."""
    boxes, scores, limits = srcs
    rows = scores.dims[0] * scores.dims[1] * attrs["most"] if scores.ndims == 3 else 0
    return op(boxes, scores, limits, MemoryDesc((rows, 3), dtype or "s64"), MemoryDesc((1,), "s64"), **attrs)


def non_zero(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe where elements are not 0, as indices of s64 by default, and how many there are."""
    (src,) = srcs
    return op(src, MemoryDesc((src.ndims, src.elements), dtype or "s64"), MemoryDesc((1,), "s64"), **attrs)


def tree_leaves(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe where rows end in decision trees, as numbers of nodes of s32."""
    src, nodes, limits, roots = srcs
    if src.ndims != 2 or roots.ndims != 1:
        raise ValueError(f"src, roots: expect (R, C) and (T,), got {src.dims} and {roots.dims}")
    return op(src, nodes, limits, roots, MemoryDesc((src.dims[0], roots.dims[0]), dtype or "s32"), **attrs)
