"""Shape inference: operation descriptors from a graph's kinds, sources and attributes.

The descriptors validate themselves, so that the graph has no second set of rules: what is accepted here is accepted by
the plan. Every error is a ValueError that starts with the name of the argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Binary,
    Concat,
    Convolution,
    Eltwise,
    InnerProduct,
    Lrn,
    Matmul,
    MemoryDesc,
    OpDesc,
    Pooling,
    Softmax,
    Sum,
)

Attrs = Mapping[str, Any]


def op_desc(kind: str, srcs: Sequence[MemoryDesc], attrs: Attrs) -> OpDesc:
    """Return the descriptor of one node of the graph wire: ``srcs`` in the wire's order, ``attrs`` as on the wire.

    All memories are row-major. Raises ValueError that names the argument that is wrong.
    """
    if kind not in _DESCRIBE:
        raise ValueError(f"kind: unknown operation {kind!r}; known: {', '.join(_DESCRIBE)}")
    return _DESCRIBE[kind](srcs, {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()})


def infer(kind: str, srcs: Sequence[tuple[int, ...]], attrs: Attrs) -> tuple[int, ...]:
    """Return the dimensions of what a node computes. Raises ValueError naming the argument that is wrong."""
    if kind == "transpose":
        perm = attrs["perm"]
        if sorted(perm) != list(range(len(srcs[0]))):
            raise ValueError(f"perm: expect each of 0..{len(srcs[0]) - 1} once, got {tuple(perm)}")
        return tuple(srcs[0][axis] for axis in perm)
    op = op_desc(kind, [MemoryDesc(dims, "f32") for dims in srcs], attrs)
    dims = op.memories()[Arg.DST].dims
    if min(dims, default=1) < 1:
        raise ValueError(f"src: {srcs[0]} leaves nothing to compute (the result would be {dims})")
    return dims


def reshaped(dims: tuple[int, ...], wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that ``wanted`` asks for, its one -1 filled in. Raises ValueError where the sizes differ."""
    known = [int(d) for d in wanted]
    if known.count(-1) > 1 or any(d < -1 for d in known):
        raise ValueError(f"shape: expect sizes and at most one -1, got {tuple(known)}")
    total = math.prod(dims)
    if -1 in known:
        rest = math.prod(d for d in known if d != -1)
        if rest == 0 or total % rest:
            raise ValueError(f"shape: {dims} does not reshape to {tuple(known)}")
        known[known.index(-1)] = total // rest
    if math.prod(known) != total:
        raise ValueError(f"shape: {dims} does not reshape to {tuple(known)}")
    return tuple(known)


def axis_of(axis: int, ndims: int, name: str = "axis") -> int:
    """Return an axis as 0..ndims-1; negative axes count from the end. Raises ValueError where it is out of range."""
    if not -ndims <= axis < ndims:
        raise ValueError(f"{name}: expect {-ndims}..{ndims - 1}, got {axis}")
    return axis % ndims


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes of equal rank broadcast to, or raise ValueError naming them."""
    result = []
    for sizes in zip(*shapes, strict=True):
        distinct = {size for size in sizes if size != 1}
        if len(distinct) > 1:
            raise ValueError(f"shapes {' and '.join(map(str, shapes))} do not broadcast")
        result.append(distinct.pop() if distinct else 1)
    return tuple(result)


def _windowed(sizes: tuple[int, ...], kernel: tuple[int, ...], attrs: Attrs, argument: str = "src") -> tuple[int, ...]:
    geometry = [attrs[name] for name in ("strides", "dilations", "padding_l", "padding_r")]
    for name, values in zip(("strides", "dilations", "padding_l", "padding_r"), geometry, strict=True):
        if len(values) != len(sizes):
            raise ValueError(f"{name}: expect {len(sizes)} values, got {tuple(values)}")
    result = []
    for size, k, stride, dilation, left, right in zip(sizes, kernel, *geometry, strict=True):
        room = size + left + right - ((k - 1) * (dilation + 1) + 1)
        if room < 0:
            raise ValueError(f"{argument}: {sizes} with its padding is smaller than the kernel {tuple(kernel)}")
        result.append(room // max(stride, 1) + 1)
    return tuple(result)


def _convolution(srcs: Sequence[MemoryDesc], attrs: Attrs) -> Convolution:
    src, weights, *bias = srcs
    if src.ndims < 3:
        raise ValueError(f"src: expect (N, IC, *spatial), got {src.dims}")
    if weights.ndims != src.ndims:
        raise ValueError(f"weights: expect rank {src.ndims} like src {src.dims}, got {weights.dims}")
    groups = attrs["groups"]
    if groups >= 1 and src.dims[1] % groups == 0 and weights.dims[1] * groups != src.dims[1]:
        per_group = f" in each of {groups} groups" if groups > 1 else ""
        raise ValueError(f"weights: expect {src.dims[1] // groups} input channels{per_group}, got {weights.dims[1]}")
    out = _windowed(src.dims[2:], weights.dims[2:], attrs)
    dst = MemoryDesc((src.dims[0], weights.dims[0], *out), src.dtype)
    return Convolution(src, weights, _bias(bias, (weights.dims[0],)), dst, **attrs)


def _pooling(srcs: Sequence[MemoryDesc], attrs: Attrs) -> Pooling:
    (src,) = srcs
    if src.ndims < 3:
        raise ValueError(f"src: expect (N, C, *spatial), got {src.dims}")
    kernel = attrs["kernel"]
    if len(kernel) != src.ndims - 2 or min(kernel) < 1:
        raise ValueError(f"kernel: expect {src.ndims - 2} sizes >= 1, got {tuple(kernel)}")
    dst = MemoryDesc((*src.dims[:2], *_windowed(src.dims[2:], kernel, attrs)), src.dtype)
    return Pooling(src, dst, **attrs)


def _binary(srcs: Sequence[MemoryDesc], attrs: Attrs) -> Binary:
    left, right = srcs
    if left.ndims != right.ndims:
        raise ValueError(f"src1: expect rank {left.ndims}, got {right.ndims}")
    try:
        dims = broadcast(left.dims, right.dims)
    except ValueError as error:
        raise ValueError(f"src1: {error}") from error
    return Binary(left, right, MemoryDesc(dims, left.dtype), **attrs)


def _concat(srcs: Sequence[MemoryDesc], attrs: Attrs) -> Concat:
    if not srcs:
        raise ValueError("srcs: expect at least one source")
    first, axis = srcs[0], attrs["axis"]
    for source in srcs:
        if source.ndims != first.ndims:
            raise ValueError(f"srcs: expect one rank, got {first.dims} and {source.dims}")
        if source.dims[:axis] + source.dims[axis + 1 :] != first.dims[:axis] + first.dims[axis + 1 :]:
            raise ValueError(f"srcs: {first.dims} and {source.dims} do not join along axis {axis}")
    joined = sum(source.dims[axis] for source in srcs)
    dims = (*first.dims[:axis], joined, *first.dims[axis + 1 :])
    return Concat(tuple(srcs), MemoryDesc(dims, first.dtype), **attrs)


def _sum(srcs: Sequence[MemoryDesc], attrs: Attrs) -> Sum:
    if not srcs:
        raise ValueError("srcs: expect at least one source")
    for source in srcs:
        if source.dims != srcs[0].dims:
            raise ValueError(f"srcs: expect one shape, got {srcs[0].dims} and {source.dims}")
    return Sum(tuple(srcs), MemoryDesc(srcs[0].dims, srcs[0].dtype), **attrs)


def _batch_normalization(srcs: Sequence[MemoryDesc], attrs: Attrs) -> BatchNormalization:
    src, *channelwise = srcs
    if src.ndims < 2:
        raise ValueError(f"src: expect (N, C, ...), got {src.dims}")
    for name, given in zip(("mean", "variance", "scale", "shift"), channelwise, strict=True):
        if given.dims != (src.dims[1],):
            raise ValueError(f"{name}: expect ({src.dims[1]},), got {given.dims}")
    return BatchNormalization(src, MemoryDesc(src.dims, src.dtype), **attrs)


def _matmul(srcs: Sequence[MemoryDesc], attrs: Attrs) -> Matmul:
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
    dst = MemoryDesc((*batch, src.dims[-2], columns), src.dtype)
    return Matmul(src, weights, _bias(bias, (*(1,) * (src.ndims - 1), columns)), dst, **attrs)


def _inner_product(srcs: Sequence[MemoryDesc], attrs: Attrs) -> InnerProduct:
    src, weights, *bias = srcs
    if src.ndims != 2 or weights.ndims != 2:
        raise ValueError(f"weights: expect src (N, IC) and weights (OC, IC), got {src.dims} and {weights.dims}")
    if src.dims[1] != weights.dims[1]:
        raise ValueError(f"weights: expect (OC, {src.dims[1]}), got {weights.dims}")
    dst = MemoryDesc((src.dims[0], weights.dims[0]), src.dtype)
    return InnerProduct(src, weights, _bias(bias, (weights.dims[0],)), dst, **attrs)


def _bias(given: Sequence[MemoryDesc], expected: tuple[int, ...]) -> MemoryDesc | None:
    if not given:
        return None
    if given[0].dims != expected:
        raise ValueError(f"bias: expect {expected}, got {given[0].dims}")
    return given[0]


def _same_shape(op: Callable[..., OpDesc]) -> Callable[[Sequence[MemoryDesc], Attrs], OpDesc]:
    def describe(srcs: Sequence[MemoryDesc], attrs: Attrs) -> OpDesc:
        (src,) = srcs
        return op(src, MemoryDesc(src.dims, src.dtype), **attrs)

    return describe


_DESCRIBE: Final[Mapping[str, Callable[[Sequence[MemoryDesc], Attrs], OpDesc]]] = {
    "convolution": _convolution,
    "pooling": _pooling,
    "eltwise": _same_shape(Eltwise),
    "binary": _binary,
    "sum": _sum,
    "concat": _concat,
    "batch_normalization": _batch_normalization,
    "lrn": _same_shape(Lrn),
    "matmul": _matmul,
    "inner_product": _inner_product,
    "softmax": _same_shape(Softmax),
}
