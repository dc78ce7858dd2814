"""Operations that move elements: concat, reorder, and the views, which only change how memory is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from poolrt.workers.desc import MemoryDesc, OpDesc

from ..shapes import infer_reshape
from .result import Attrs, Operation, describe_result

VIEWS: Final = ("reshape", "transpose", "slice", "expand")


def concat(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe the join of tensors along an axis."""
    if not srcs:
        raise ValueError("srcs: expect at least one source")
    first, axis = srcs[0], attrs["axis"]
    if not 0 <= axis < first.ndims:
        raise ValueError(f"axis: expect 0..{first.ndims - 1}, got {axis}")
    for source in srcs:
        if source.ndims != first.ndims:
            raise ValueError(f"srcs: expect one rank, got {first.dims} and {source.dims}")
        if source.dims[:axis] + source.dims[axis + 1 :] != first.dims[:axis] + first.dims[axis + 1 :]:
            raise ValueError(f"srcs: {first.dims} and {source.dims} do not join along axis {axis}")
    joined = sum(source.dims[axis] for source in srcs)
    dims = (*first.dims[:axis], joined, *first.dims[axis + 1 :])
    return op(tuple(srcs), describe_result(first, dtype, dims), **attrs)


def reorder(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a change of data type and layout; an empty ``tag`` leaves the layout to the plan."""
    (src,) = srcs
    return op(src, describe_result(src, dtype).with_tag(attrs["tag"]), wraps=attrs.get("wraps", False))


def pad(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe elements added around a tensor, or cut from it."""
    from poolrt.workers.desc.operations.pad import padded_dims

    (src,) = srcs
    dims = padded_dims(src.dims, attrs["padding_l"], attrs["padding_r"], attrs.get("mode", "constant"))
    return op(src, describe_result(src, dtype, dims), **attrs)


def view(kind: str, src: MemoryDesc, attrs: Attrs) -> MemoryDesc:
    """Return the row-major descriptor of a view. Raises ValueError naming the wrong argument."""
    match kind:
        case "reshape":
            dims = infer_reshape(src.dims, attrs["shape"], attrs["axes"])
        case "transpose":
            perm = attrs["perm"]
            if sorted(perm) != list(range(src.ndims)):
                raise ValueError(f"perm: expect each of 0..{src.ndims - 1} once, got {tuple(perm)}")
            dims = tuple(src.dims[axis] for axis in perm)
        case "slice":
            dims = resolve_slice(src.dims, attrs)[1]
        case "expand":
            dims = tuple(attrs["shape"])
            kept = zip(reversed(src.dims), reversed(dims), strict=False)
            if len(dims) < src.ndims or not all(size in (1, wanted) for size, wanted in kept):
                raise ValueError(f"shape: {src.dims} does not expand to {dims}")
        case _:
            raise ValueError(f"kind: unknown view {kind!r}")
    return MemoryDesc(dims, src.dtype)


def resolve_slice(dims: tuple[int, ...], attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the starts of a slice and the number of its elements along each dimension, counted as Python's slices.

    ``starts``, ``ends`` and ``steps`` have a number for each dimension. Raises ValueError naming the wrong one.
    """
    starts, ends, steps = (attrs[name] for name in ("starts", "ends", "steps"))
    if not len(starts) == len(ends) == len(steps) == len(dims):
        raise ValueError(f"starts: expect {len(dims)} values like src {dims}, got {tuple(starts)}")
    found = []
    for axis, (size, start, end, step) in enumerate(zip(dims, starts, ends, steps, strict=True)):
        if step < 1:
            raise ValueError(f"steps: expect at least 1, got {step}")
        taken = range(*slice(start, end, step).indices(size))
        if not taken:
            raise ValueError(f"ends: {start}:{end} leaves nothing of dimension {axis} of {dims}")
        found.append((taken.start, len(taken)))
    return tuple(start for start, _ in found), tuple(count for _, count in found)
