"""Operations element by element, and those that keep a shape."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.workers.desc import Dft, MemoryDesc, OpDesc

from ..shapes import broadcast, normalize_axes
from .result import Attrs, Operation, describe_result


def same_shape(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe an operation of one operand whose result has its shape."""
    (src,) = srcs
    return op(src, describe_result(src, dtype), **attrs)


def dynamic_quantise(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe bytes, their scale and their zero point."""
    (src,) = srcs
    return op(src, MemoryDesc(src.dims, dtype or "u8"), MemoryDesc((), "f32"), MemoryDesc((), "u8"), **attrs)


def dft(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the frequencies of signals, or signals."""
    (src,) = srcs
    # What is no transform is refused by its descriptor.
    optional = (attrs.get(name, False) for name in ("inverse", "one_sided"))
    made = Dft.result_dims(src.dims, attrs["axis"], attrs["length"], *optional)
    return op(src, MemoryDesc(made, dtype or src.dtype), **attrs)


def binary(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the combination of two tensors of one rank."""
    left, right = srcs
    if left.ndims != right.ndims:
        raise ValueError(f"src1: expect rank {left.ndims}, got {right.ndims}")
    try:
        dims = broadcast(left.dims, right.dims)
    except ValueError as error:
        raise ValueError(f"src1: {error}") from error
    return op(left, right, describe_result(left, dtype, dims), **attrs)


def total(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the sum of tensors of one shape."""
    if not srcs:
        raise ValueError("srcs: expect at least one source")
    for source in srcs:
        if source.dims != srcs[0].dims:
            raise ValueError(f"srcs: expect one shape, got {srcs[0].dims} and {source.dims}")
    return op(tuple(srcs), describe_result(srcs[0], dtype), **attrs)


def prelu(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a relu whose slopes are weights."""
    src, weights = srcs
    return op(src, weights, describe_result(src, dtype), **attrs)


def reduction(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a reduction along ``axes``."""
    (src,) = srcs
    axes = normalize_axes(attrs["axes"], src.ndims)
    own = {name: value for name, value in attrs.items() if name != "axes"}
    dims = tuple(1 if axis in axes else size for axis, size in enumerate(src.dims))
    return op(src, describe_result(src, dtype, dims), **own)
