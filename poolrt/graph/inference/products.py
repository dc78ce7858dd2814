"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc

from ..shapes import broadcast
from .result import Attrs, Operation, describe_product


def matmul(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a product of (..., M, K) and (..., K, N), with an optional bias."""
    src, weights, *bias = srcs
    if src.ndims < 2 or weights.ndims != src.ndims:
        raise ValueError(f"weights: expect src and weights of one rank >= 2, got {src.dims} and {weights.dims}")
    if weights.dims[-2] != src.dims[-1]:
        raise ValueError(f"weights: expect {src.dims[-1]} rows (..., K, N), got {weights.dims}")
    try:
        batch = broadcast(src.dims[:-2], weights.dims[:-2])
    except ValueError as error:
        raise ValueError(f"weights: batch {error}") from error
    columns = weights.dims[-1]
    dst = describe_product(src, dtype, (*batch, src.dims[-2], columns))
    return op(src, weights, check_bias(bias, (*(1,) * (src.ndims - 1), columns)), dst, **attrs)


def inner_product(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a product of (N, IC) and the transpose of (OC, IC), with an optional bias."""
    src, weights, *bias = srcs
    if src.ndims != 2 or weights.ndims != 2:
        raise ValueError(f"weights: expect src (N, IC) and weights (OC, IC), got {src.dims} and {weights.dims}")
    if src.dims[1] != weights.dims[1]:
        raise ValueError(f"weights: expect (OC, {src.dims[1]}), got {weights.dims}")
    dst = describe_product(src, dtype, (src.dims[0], weights.dims[0]))
    return op(src, weights, check_bias(bias, (weights.dims[0],)), dst, **attrs)


def matmul_nbits(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a product of (M, K) and weights of a few bits, with optional zero points and an optional bias."""
    src, weights, *rest = srcs
    bias = rest.pop(0) if rest and rest[0].ndims == 1 else None
    if src.ndims != 2 or weights.ndims != 3 or not 1 <= len(rest) <= 2:
        raise ValueError(
            f"weights: expect src (M, K) and weights (N, blocks, bytes), got {src.dims} and {weights.dims}"
        )
    dst = describe_product(src, dtype, (src.dims[0], weights.dims[0]))
    return op(src, weights, rest[0], rest[1] if len(rest) > 1 else None, bias, dst, **attrs)


def determinant(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the determinants of matrices (B, N, N), in their data type by default."""
    (src,) = srcs
    if src.ndims != 3:
        raise ValueError(f"src: expect (B, N, N), got {src.dims}")
    return op(src, MemoryDesc(src.dims[:1], dtype or src.dtype), **attrs)


def check_bias(given: Sequence[MemoryDesc], expected: tuple[int, ...]) -> MemoryDesc | None:
    """Return the bias, None if there is none. Raises ValueError if its shape is not the expected one."""
    if not given:
        return None
    if given[0].dims != expected:
        raise ValueError(f"bias: expect {expected}, got {given[0].dims}")
    return given[0]
