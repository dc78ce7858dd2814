"""Operations that move elements: concat, reorder, and the views, which only change how memory is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from poolrt.workers.desc import MemoryDesc, OpDesc

from .result import Attrs, Operation, Result

VIEWS: Final = ("reshape", "transpose", "slice", "expand")


def concat(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, result: Result) -> OpDesc:
    """Describe the join of tensors along an axis."""
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
    return op(tuple(srcs), result.like(first, dims), **attrs)


def reorder(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, result: Result) -> OpDesc:
    """Describe a change of data type and layout; an empty ``tag`` leaves the layout to the plan."""
    (src,) = srcs
    return op(src, result.like(src).with_tag(attrs["tag"]))


def view(kind: str, src: MemoryDesc, attrs: Attrs, result: Result) -> MemoryDesc:
    """Return the row-major descriptor of a view. Raises ValueError naming the argument that is wrong."""
    match kind:
        case "reshape":
            dims = result.chosen()
            if MemoryDesc(dims, src.dtype).elements != src.elements:
                raise ValueError(f"shape: {src.dims} does not reshape to {dims}")
        case "transpose":
            perm = attrs["perm"]
            if sorted(perm) != list(range(src.ndims)):
                raise ValueError(f"perm: expect each of 0..{src.ndims - 1} once, got {tuple(perm)}")
            dims = tuple(src.dims[axis] for axis in perm)
        case "slice":
            dims = _sliced(src.dims, attrs["starts"], attrs["steps"], result.chosen())
        case "expand":
            dims = result.chosen()
            kept = zip(reversed(src.dims), reversed(dims), strict=False)
            if len(dims) < src.ndims or not all(size in (1, wanted) for size, wanted in kept):
                raise ValueError(f"shape: {src.dims} does not expand to {dims}")
        case _:
            raise ValueError(f"kind: unknown view {kind!r}")
    return MemoryDesc(dims, src.dtype)


def _sliced(
    dims: tuple[int, ...], starts: Sequence[int], steps: Sequence[int], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    if not len(starts) == len(steps) == len(sizes) == len(dims):
        raise ValueError(f"starts: expect {len(dims)} values like src {dims}, got {tuple(starts)}")
    for dim, start, step, size in zip(dims, starts, steps, sizes, strict=True):
        if start < 0 or step < 1 or size < 1 or start + (size - 1) * step >= dim:
            raise ValueError(f"starts: {size} elements from {start} in steps of {step} are not inside of {dim}")
    return sizes
