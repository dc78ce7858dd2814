"""The columns of a product behind its last whole vector of 16, as sums over lanes. Pure.

A vector of them would take as long as 16 columns do: a product into 17 columns as long as one into 32.
"""

from __future__ import annotations

from typing import Final

from ...desc import Arg, MemoryDesc, PrimitiveAttr
from ..program import LaunchArgument
from .few_product import describe_few
from .nest_builder import NestBuilder
from .product_shape import Shape, flat_index, offset, transposed_tag

#: Columns of a vector; inputs that a sum over lanes takes as long as; and so many at least are deep enough.
_LANES: Final = 16
_REST: Final = 128
_DEEP: Final = 64
#: Multiplications of vectors that are worth further launches, and the least part of all multiplications.
_LEAST_SAVED: Final = 20_000
_LEAST_PART: Final = 50


def count_last_columns(shape: Shape, left: MemoryDesc, right: MemoryDesc) -> int:
    """Return the columns behind the last whole vector if they are summed over lanes in less time than as a vector; else 0."""
    last = shape.columns % _LANES
    if right.layout.blocks or left.outer_strides()[-1] != 1 or shape.depth < _DEEP or shape.columns < _LANES:
        return 0
    # In multiplications of vectors.
    saved = shape.rows * shape.depth - last * (shape.rows * (shape.depth + _REST) // _LANES + shape.depth)
    total = shape.rows * shape.depth * -(-shape.columns // _LANES)
    return last if saved * len(shape.batch) >= _LEAST_SAVED and saved * _LEAST_PART >= total else 0


def describe_last_columns(
    build: NestBuilder, shape: Shape, left: MemoryDesc, right: MemoryDesc, bias: bool, attr: PrimitiveAttr, first: int
) -> None:
    """Add the launches that compute the columns from number ``first`` on."""
    few = shape.columns - first
    strides, right_strides = ([4 * stride for stride in md.outer_strides()] for md in (left, right))
    place: LaunchArgument = ("m", (int(Arg.WEIGHTS), first * right_strides[-1]))
    distance = right_strides[-1]
    rights = [offset(index, right_strides) for _, index in shape.batch]
    if right_strides[-2] != 4:
        # Inputs are put side by side.
        narrow = MemoryDesc((*right.dims[:-1], few), "f32", strides=right.outer_strides())
        apart = narrow.with_tag(transposed_tag(right.ndims))
        to = build.book(apart.nbytes)
        build.move(narrow, apart, place, to)
        place, distance = to, shape.depth * 4
        rights = [flat_index(index, right.dims[:-2]) * shape.depth * 4 * few for _, index in shape.batch]
    lefts = [offset(index, strides) for index, _ in shape.batch]
    sizes = shape.rows, shape.depth, few
    places: tuple[LaunchArgument, LaunchArgument] = (("m", (int(Arg.SRC), 0)), place)
    pairs = list(zip(lefts, rights, strict=True))
    describe_few(
        build, sizes, places, (strides[-2], distance), pairs, "columns", bias, attr, (first * 4, shape.columns * 4)
    )
