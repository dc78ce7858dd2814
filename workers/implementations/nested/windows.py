"""The windows of a convolution as rows of a matrix, and back: kernels of its own, between row-major images and scratchpad."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...desc import Convolution, item_size
from ..program import LaunchArgument
from .builder import NestedBuilder


def unfold(build: NestedBuilder, op: Convolution, images: LaunchArgument) -> LaunchArgument:
    """Add the copy of all windows of row-major src to rows (groups, batch and pixels of dst, channels and window)."""
    rows = build.book(unfolded_bytes(op))
    # Windows without elements leave nothing to copy.
    count = unfolded_bytes(op) and op.groups * op.dst.dims[0] * math.prod(op.dst.dims[2:]) * op.weights.dims[1]
    items = op.groups * math.prod((op.dst.dims[0], *_three(op.dst.dims[2:], 1)[:2]))
    build.run("unfold", (images, rows), _sizes(op), items, count, **_type(op))
    return rows


def fold(build: NestedBuilder, op: Convolution, rows: LaunchArgument, images: LaunchArgument) -> None:
    """Add the sum of rows, as `unfold` leaves them, into row-major src."""
    count = op.src.elements
    items = math.prod((*op.src.dims[:2], *_three(op.src.dims[2:], 1)[:2]))
    build.run("fold", (images, rows), _sizes(op), items, count, **_type(op))


def unfolded_bytes(op: Convolution) -> int:
    """Return the size of the rows of all groups."""
    pixels = op.dst.dims[0] * math.prod(op.dst.dims[2:])
    return item_size(op.src.dtype) * op.groups * pixels * math.prod(op.weights.dims[1:])


def _sizes(op: Convolution) -> tuple[int, ...]:
    """Return the numbers that both kernels take, for three spatial dimensions."""
    return (
        op.src.dims[0], op.groups, op.weights.dims[1],
        *_three(op.src.dims[2:], 1), *_three(op.dst.dims[2:], 1), *_three(op.weights.dims[2:], 1),
        *_three(op.strides, 1), *_three((dilation + 1 for dilation in op.dilations), 1), *_three(op.padding_l, 0),
    )  # fmt: skip


def _type(op: Convolution) -> dict[str, str]:
    """Return the data type that both kernels take if it is not f32."""
    return {} if op.src.dtype == "f32" else {"dtype": op.src.dtype}


def _three(values: Iterable[int], fill: int) -> tuple[int, ...]:
    given = tuple(values)
    return (*(fill,) * (3 - len(given)), *given)
