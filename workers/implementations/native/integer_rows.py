"""The launches of a product of few rows of 8-bit integers by a row-major matrix that is not packed."""

from __future__ import annotations

from typing import Final

from ...desc import Arg, MemoryDesc, PrimitiveAttr, item_size
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument
from .integer_epilogue import NONE, Epilogue, is_exact
from .integer_reduce import GROUP, Outputs, add_terms, scaled_place
from .nest_builder import NestBuilder

#: Rows, at most, of which a product that interleaves weights for each tile takes less time than packing them once.
_FEW_ROWS: Final = {"vnni": 8, "pairs": 4}
#: The same if columns have zero points, which no kernel for packed weights has.
_FEW_ROWS_WITH_POINTS: Final = 8
#: The fewest columns of which tiles read in place.
_LEAST_COLUMNS: Final = 16
#: Rows of a tile.
_POSITIONS: Final = (1, 2, 4)
#: How groups are multiplied -> rows of a tile -> vectors of columns that are interleaved together.
_UNITS: Final = {"vnni": {1: 4, 2: 2, 4: 1}, "pairs": {1: 4, 2: 2, 4: 1}}
#: Levels whose registers hold the sums of so many units; others have half of them.
_WIDE: Final = ("x86-64-v4", "x86-64-v3")
#: Columns of a unit.
_COLUMNS: Final = {"vnni": 64, "pairs": 16}
#: Bytes of weights that a second-level cache holds, whose columns may be read one after the other.
_CACHED: Final = 256 << 10
#: Groups of larger weights that are added up for all columns before the next, in the order of memory: of rows up to `_LONG`
#: bytes, and of longer ones, of which the first-level cache holds few lines at once.
_BANDS: Final = (32, 8)
_LONG: Final = 2048


def fits_rows(src: MemoryDesc, weights: MemoryDesc, rows: int, how: str, points: bool) -> bool:
    """Return whether a product without packed weights has few rows, and those of weights are adjacent bytes.

    ``points`` if columns have zero points.
    """
    depth, columns = weights.dims[-2:]
    across = weights.outer_strides()[-1]
    dense = src.ndims > 2 or src.outer_strides()[1] == 1
    return (
        how in _UNITS
        and not (weights.layout.blocks or weights.repeats)
        and rows <= (_FEW_ROWS_WITH_POINTS if points else _FEW_ROWS[how])
        and depth > 0
        and columns >= _LEAST_COLUMNS
        and across == 1
        and dense
    )


def multiply_rows(
    build: NestBuilder, isa: str, how: str, src: tuple[LaunchArgument, MemoryDesc, int], weights: MemoryDesc,
    outputs: Outputs, epilogue: Epilogue, attr: PrimitiveAttr, rows: int,
) -> None:  # fmt: skip
    """Add the launches of a product; ``src`` is where it is, its descriptor, and the bytes from row to row."""
    depth, columns = weights.dims[-2:]
    exact = is_exact(attr, outputs.bias, outputs.dst)
    positions = next((n for n in _POSITIONS if n >= rows), _POSITIONS[-1])
    unit = _COLUMNS[how]
    most = _UNITS[how][positions] if isa in _WIDE else min(_UNITS[how][positions], 2)
    units = min(most, 1 << (columns // unit).bit_length() >> 1) or 1
    groups = -(-depth // GROUP[how])
    sums, together = NONE, groups
    if how == "pairs":
        tiles, point = -(-rows // positions), epilogue.point(Arg.SRC) != NONE
        sums = build.book(tiles * -(-columns // (units * unit)) * units * unit * (positions + point) * 4)
        line = weights.outer_strides()[-2]
        if depth * line > _CACHED:
            together = _BANDS[line > _LONG]
    # Sums that begin with nothing need no factors either.
    has_terms = not exact or outputs.bias is not None or epilogue.point(Arg.DST) != NONE
    places: list[LaunchArgument] = [NONE] * 3
    if has_terms:
        places = add_terms(build, how, NONE, 0, groups, outputs, epilogue, exact, "s8", True)
        # Tiles read the numbers of whole units of columns.
        build.book(unit * 4)
    source, md, row = src
    size, other = item_size(outputs.dst.dtype), epilogue.residual_dtype
    other_size = item_size(other) if other else 0
    masks = [item.mask for item in attr.zero_points if item.arg == Arg.WEIGHTS]
    numbers = (
        4 if any(masks) else 0, rows, depth, columns, row, weights.outer_strides()[-2], columns * size, columns * other_size,
    )  # fmt: skip
    args: tuple[LaunchArgument, ...] = (
        source, ("m", (int(Arg.WEIGHTS), 0)), ("m", (int(Arg.DST), 0)), epilogue.residual, *places,
        *scaled_place(epilogue, exact), epilogue.point(Arg.SRC), epilogue.point(Arg.WEIGHTS), *(("i", n) for n in numbers), sums,
        ("i", together), ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
    )  # fmt: skip
    kernel = KernelSpec.of(
        "integer_rows", how=how, positions=positions, units=units, signed=md.dtype == "s8", kind=weights.dtype,
        dtype=outputs.dst.dtype, residual=other, exact=exact, terms=has_terms, point=epilogue.point(Arg.SRC) != NONE,
        points=bool(masks),
    )  # fmt: skip
    build.launch(kernel, args, -(-columns // (units * unit)))
