"""The launches of an integer product: the terms of each output, then register tiles over positions."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ...desc import Arg, MemoryDesc, item_size
from ...kernels.native.limits import CROSSED_GROUPS
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument
from .convolution_tiles import output_blocks, strips, tiling
from .integer_epilogue import NONE, Epilogue
from .nest_builder import NestBuilder

#: Numbers that one instruction adds up for an output, by how it multiplies: the last block of packed weights.
GROUP = {"amx": 4, "vnni": 4, "bytes": 4, "pairs": 2}
#: Bytes of such a group in src.
GROUP_BYTES = 4
#: Most tiles, and most positions of one, that add up weights themselves: less work than a pass over all weights, and registers.
_FEW_TILES: Final = 4
_FEW_POSITIONS: Final = 12


#: Most rows that an item of work copies.
_COPIED: Final = 16
#: The only level on which half the multiplications were measured. With fewer rows or products, widening weights takes longer than
#: it saves, with fewer outputs the products of each row's own numbers do.
_CROSSED_LEVEL: Final = "x86-64-v3"
_CROSSED_ROWS: Final = 24
_CROSSED_OUTPUTS: Final = 16
_CROSSED_PRODUCTS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of an image as rows and columns, and the layout of src: bytes from row to row, and so on.

    ``steps`` are (offset, groups of numbers) to add up at each position.
    """

    rows: int
    columns: int
    row: int
    column: int
    image: int
    group: int
    steps: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Images, groups and the outputs of each; dst has all outputs of a position side by side.

    Groups may be several of the convolution's, ``parts``, whose sources are ``apart`` bytes from each other.
    """

    images: int
    groups: int
    channels: int
    dst: MemoryDesc
    bias: MemoryDesc | None
    parts: int = 1
    apart: int = 0

    @property
    def straddles(self) -> bool:
        """Whether blocks of 16 outputs have those of several groups."""
        return self.groups > 1 and self.channels % 16 != 0

    @property
    def blocks(self) -> int:
        """Blocks of 16 outputs of a group, at most."""
        starts = {group * self.channels % 16 for group in range(min(self.groups, 16))}
        return -(-(max(starts) + self.channels) // 16)

    def as_one_group(self) -> Outputs:
        """Return the same outputs as those of a single group."""
        return replace(self, groups=1, channels=self.groups * self.channels)


def reduce_integers(
    build: NestBuilder, isa: str, how: str, src: LaunchArgument, weights: LaunchArgument, shift: int,
    positions: Positions, outputs: Outputs, epilogue: Epilogue, exact: bool, kind: str = "s8",
) -> None:  # fmt: skip
    """Add the launches of a product; ``shift`` is what was added to src when it was copied, ``kind`` the type of weights."""
    if how == "pairs" and is_crossed(isa, positions, outputs):
        multiply_crossed(build, src, weights, positions, outputs, epilogue, exact, kind)
        return
    channels, groups, blocks, straddles = outputs.channels, outputs.groups, outputs.blocks, outputs.straddles
    count = sum(number for _, number in positions.steps)
    weight_block = count * 16 * GROUP[how]
    src_point, dst_scale, dst_point = epilogue.point(Arg.SRC), *scaled_place(epilogue, exact)
    tiles = tiling(isa, positions.rows, positions.columns, blocks, _FEW_POSITIONS)
    counts = how == "vnni" and (shift != 0 or src_point != NONE) and outputs.images * len(tiles.places) <= _FEW_TILES
    if counts:
        # Beside the sums of each position are those of the weights.
        tiles = replace(tiles, blocks=output_blocks(isa, sum(tiles.kinds[0]) + 1, blocks))
    else:
        tiles = tiling(isa, positions.rows, positions.columns, blocks)
    whole = outputs.as_one_group() if straddles else outputs
    terms = add_terms(build, how, weights, shift, count, whole, epilogue, exact, kind, counts)
    passes = -(-blocks // tiles.blocks)
    items = outputs.images * groups
    cut = strips(len(tiles.places), positions.image, blocks * weight_block, passes, items)
    places = [
        (kind, row * positions.row + column * positions.column, row * positions.columns + column)
        for kind, row, column in tiles.places
    ]
    size, other = item_size(outputs.dst.dtype), epilogue.residual_dtype
    other_size = item_size(other) if other else 0
    line, area = groups * channels, positions.rows * positions.columns
    tables = ([v for step in positions.steps for v in step], [v for place in places for v in place], list(cut))
    args: tuple[LaunchArgument, ...] = (
        src, weights, ("m", (int(Arg.DST), 0)), epilogue.residual, *terms, dst_scale, dst_point,
        *(("t", build.table(values)) for values in tables),
        *(
            ("i", n)
            for n in (
                len(cut) - 1, groups, blocks, len(positions.steps), channels, positions.image, positions.group,
                positions.row, positions.column, blocks * weight_block, weight_block, area * line * size, line * size,
                area * line * other_size, line * other_size,
            )
        ),
        src_point, ("i", shift), ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
    )  # fmt: skip
    kernel = KernelSpec.of(
        "integer_conv", how=how, tiles=tiles.kinds, blocks=tiles.blocks, dtype=outputs.dst.dtype, residual=other,
        exact=exact, part=channels % 16 != 0, kind=kind, counts=counts, straddles=straddles, parts=outputs.parts,
        apart=outputs.apart,
    )  # fmt: skip
    build.launch(kernel, args, outputs.images * groups * (len(cut) - 1) * passes)


def row_copies(rows: int, lane: int, row: int, depth: int, padded: int) -> tuple[tuple[int, ...], int]:
    """Return the sizes that `integer_copy` takes for rows of ``depth`` numbers, and its items of work: several rows each.

    ``lane`` and ``row`` are the distances from number to number and from row to row, in bytes.
    """
    columns = max(number for number in range(1, _COPIED + 1) if rows % number == 0)
    lines = rows // columns
    return (lines, columns, 0, lane, columns * row, row, lines, columns, 1, 1, 0, 0, 1, depth, padded), lines


def is_crossed(isa: str, positions: Positions, outputs: Outputs) -> bool:
    """Return whether a product in pairs is one of rows, of which there are enough to widen weights and to add up rows."""
    rows, channels = outputs.images * positions.rows * positions.columns, outputs.channels
    offset, pairs = positions.steps[0]
    if len(positions.steps) > 1 or offset or outputs.groups > 1 or outputs.parts > 1:
        return False
    line = positions.columns * positions.column
    if (positions.rows > 1 and positions.row != line) or (
        outputs.images > 1 and positions.image != positions.rows * line
    ):
        return False
    return is_crossed_product(isa, rows, pairs, channels, _CROSSED_PRODUCTS)


def is_crossed_product(isa: str, rows: int, pairs: int, outputs: int, least: int) -> bool:
    """Return whether half the multiplications are worth passes over both factors of a product in pairs: ``least`` are."""
    if isa != _CROSSED_LEVEL or pairs % 2 or pairs > 2 * CROSSED_GROUPS:
        return False
    return rows >= _CROSSED_ROWS and outputs > _CROSSED_OUTPUTS and rows * 2 * pairs * outputs >= least


def add_row_products(build: NestBuilder, src: LaunchArgument, rows: int, groups: int, row: int) -> LaunchArgument:
    """Add the launch of `integer_crossed_rows` and return where its results are.

    Rows have ``groups`` of four numbers and are ``row`` bytes apart.
    """
    found = build.book(rows * 4)
    build.launch(KernelSpec.of("integer_crossed_rows"), (src, found, ("i", row), ("i", groups)), rows)
    return found


def multiply_crossed(
    build: NestBuilder, src: LaunchArgument, weights: LaunchArgument, positions: Positions, outputs: Outputs,
    epilogue: Epilogue, exact: bool, kind: str,
) -> None:  # fmt: skip
    """Add the launches of a product of rows in pairs by half the multiplications."""
    rows, channels = outputs.images * positions.rows * positions.columns, outputs.channels
    pairs, blocks = positions.steps[0][1], outputs.blocks
    squares = add_row_products(build, src, rows, pairs // 2, positions.column)
    terms = add_terms(build, "pairs", weights, 0, pairs, outputs, epilogue, exact, kind)
    cut = len(strips(rows // 6, rows * positions.column, blocks * pairs * 32, blocks, 1)) - 1
    size, other = item_size(outputs.dst.dtype), epilogue.residual_dtype
    other_size = item_size(other) if other else 0
    numbers = (
        rows, blocks, cut, channels, pairs // 2, positions.column, channels * size, channels * other_size,
    )  # fmt: skip
    args: tuple[LaunchArgument, ...] = (
        src, squares, weights, ("m", (int(Arg.DST), 0)), epilogue.residual, *terms, *scaled_place(epilogue, exact),
        *(("i", n) for n in numbers), ("f", epilogue.weight), ("f", epilogue.low), ("f", epilogue.high),
    )  # fmt: skip
    kernel = KernelSpec.of(
        "integer_crossed", dtype=outputs.dst.dtype, residual=other, exact=exact, part=channels % 16 != 0, kind=kind
    )
    build.launch(kernel, args, blocks * cut)


def add_terms(
    build: NestBuilder, how: str, weights: LaunchArgument, shift: int, count: int, outputs: Outputs, epilogue: Epilogue,
    exact: bool, kind: str, counts: bool = False,
) -> list[LaunchArgument]:  # fmt: skip
    """Add the launch that computes terms, factors and offsets of each output, and return their places.

    ``count`` is the groups of weights of an output. With ``counts``, tiles add up weights themselves.
    """
    channels, groups = outputs.channels, outputs.groups
    blocks = -(-channels // 16)
    places = [build.book(groups * blocks * 64) for _ in range(3)]
    bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if outputs.bias is not None else NONE
    points = NONE if counts else epilogue.point(Arg.SRC), NONE if _is_narrow(outputs) else epilogue.point(Arg.DST)
    scales = (epilogue.scale(arg) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
    numbers = (count, epilogue.scale_step, blocks, channels, 0 if counts else shift)
    kernel = KernelSpec.of(
        "integer_terms",
        how=how,
        exact=exact,
        bias=outputs.bias.dtype if outputs.bias else "",
        less=how == "pairs",
        kind=kind,
    )
    args = (weights, bias, *points, *scales, *places, *(("i", n) for n in numbers), ("f", epilogue.added))
    build.launch(kernel, args, groups * blocks)
    return places


def scaled_place(epilogue: Epilogue, exact: bool) -> tuple[LaunchArgument, LaunchArgument]:
    """Return the places of scale and zero point of dst that a tile needs, which sums that are the results do not have."""
    return (NONE, NONE) if exact else (epilogue.scale(Arg.DST), epilogue.point(Arg.DST))


def _is_narrow(outputs: Outputs) -> bool:
    return outputs.dst.dtype in ("u8", "s8")
