"""Describe a batched matrix product for the native engine: how rows and columns are read and work is cut. Pure."""

from __future__ import annotations

import itertools
import math
from typing import Final, NamedTuple

from ...desc import Arg, MemoryDesc, PrimitiveAttr
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .chain import chain_source
from .convolution_chain import bounds
from .convolution_tiles import product_blocks, product_tiles
from .few_product import describe_few
from .last_columns import count_last_columns, describe_last_columns
from .nest_builder import NestBuilder
from .product_shape import Shape, flat_index, moved, offset, packed_tag, transposed_tag
from .row_product import describe_row

#: Least tiles of a strip: fewer would read the columns from memory too often.
_STRIP_TILES: Final = 4
#: So many tiles of rows are worth a packed copy of the columns that an item of work multiplies; or so many, if at least so many
#: rows of columns compete for the same lines of the first-level cache, which each tile would read again.
_WORTH_PACKING: Final = 3
_WORTH_PACKING_RIVALS: Final = 2
_RIVALS: Final = 32
#: So many are worth one of columns whose lines stay in the second-level cache, if rows begin in the same place of a line.
_WORTH_COPYING: Final = 8
#: Lines at multiples of so many bytes compete for the same places of a second-level cache, and how many of them it holds.
_FAR_ALIASING: Final = 128 << 10
_FAR_WAYS: Final = 8
#: Bytes of rows that are near enough to be read where they are each time: they stay in the second-level cache.
_NEAR: Final = 1 << 20
#: The same if so many tiles read them that a packed copy costs little beside.
_NEAR_FOR_MANY: Final = 128 << 10
#: So many are worth a packed copy of all columns, which items of work share.
_WORTH_SHARING: Final = 48
#: Bytes of a right matrix that are near enough to be waited for: to ask for them takes longer.
_ASKED: Final = 512 << 10
#: Bytes of rows that stay in the first-level cache, so that they are read where they are, however often.
_NEAREST: Final = 16 << 10
#: Bytes of a matrix's packed columns from which on all items of work share them, and the most bytes of those of all matrices
#: that stay in the caches until they are read.
_OWN: Final = 128 << 10
_SHARED: Final = 4 << 20
#: Inputs, at most, of a slice of packed columns that come from memory.
_STREAMED: Final = 1024
#: Bytes of rows from which on a few tiles, of more than a pair of rows, read so many of them at once: lines of more that are one
#: above the other are in too many pages, and compete for the caches before the next ones of the same rows are read.
_FAR: Final = 4 << 20
_PAIR: Final = 2
_FAR_SLICE: Final = 384
#: Inputs, at most, of products that take as long as their results are written; bytes of results that no cache may hold, and of
#: a row of them that is long; and bytes that are computed before the next rows, so that memory is written in its order, which
#: processors foresee.
_SHALLOW: Final = 24
_FAR_RESULTS: Final = 12 << 20
_LONG_ROW: Final = 3 << 10
_IN_ORDER: Final = 64 << 10
#: Fewer items of work have fewer tiles each, so that threads share them evenly.
_FEW_ITEMS: Final = 12
#: Rows of an item of work that packs columns, and panels of one that packs rows whose inputs are not adjacent.
_SLAB: Final = 8
_GROUP: Final = 8
#: Most bytes for the columns that all items of work pack; threads use only a part.
_ROOM: Final = 64 << 20
#: Most columns, and most rows, of a product whose results are sums over lanes; a sum takes as long as so many inputs. Deep enough
#: are rows of so many.
_FEW_COLUMNS: Final = 16
_FEW_ROWS: Final = {"x86-64-v4": 16}
_FEWER_ROWS: Final = 8
_REST: Final = 128
_DEEP: Final = 64
#: Most rows of a tile of rows that compete for the same lines of the first-level cache, which has 8 ways or more; with room for
#: other lines, if there are several tiles.
_WAYS: Final = 8
_WAYS_OF_SEVERAL: Final = 6
#: Bytes of a cache line.
_LINE: Final = 64
#: Rows at multiples of so many bytes compete for the same lines of the first-level cache.
_ALIASING: Final = 4096


class _Blocking(NamedTuple):
    """How much of a product is computed before the next part, so that both factors of it stay in the caches.

    ``strip`` are bytes of rows that are multiplied by all columns before the next rows. ``slice`` inputs are summed at once
    if rows with all of theirs are more; with more than ``slices``, slices are longer. With ``copies``, inputs of any rows and
    columns are cut, packed columns too, and both factors are copied into packed form if they are read often. Rows that compete
    for the cache are packed for more than ``vectors`` of columns. Tiles have at most ``rows`` if columns are not packed.
    """

    strip: int
    slice: int
    slices: int
    copies: bool
    vectors: int
    rows: int


#: ISA level -> blocking. Processors with AVX-512 have second-level caches of 1 MiB or more, others mostly of 256 or 512 KiB.
_BLOCKING: Final = {"x86-64-v4": _Blocking(512 << 10, 512, 16, False, 1 << 31, 6)}
_SMALL_CACHES: Final = _Blocking(416 << 10, 768, 64, True, 8, 6)


class Matrices(NamedTuple):
    """One factor as the kernel reads it: its place, the offset of each product's matrix, and two distances, in bytes.

    Of a left factor these are from row to row of tiles and from one input to the next, of a right one from 16 columns
    to the next 16 and from row to row. ``packs`` says which elements of a right one are adjacent if items of work pack
    it, or of a left one if `pack_left` packs it: then there is no distance from input to input. ``column`` is from column
    to column; ``aligns`` if rows begin in the same place of a cache line: of those that are packed, not if that is its beginning.
    ``is_slice`` if `_pack_columns` writes each slice to the same place.
    """

    at: LaunchArgument
    offsets: list[int]
    across: int
    along: int
    packs: str = ""
    column: int = 4
    aligns: bool = False
    is_slice: bool = False


def refuse_left(left: MemoryDesc) -> str | None:
    """Return why a product cannot read its left factor in this layout, or None."""
    row, lane = left.outer_strides()[-2:]
    return None if not left.layout.blocks and (lane == 1 or row == 1) else f"src layout {left}; expect rows or columns"


def describe(shape: Shape, left: MemoryDesc, right: MemoryDesc, bias: bool, attr: PrimitiveAttr, isa: str) -> Program:
    """Return the program of a product of ``left`` (..., M, K) by ``right`` (..., K, N) into a row-major dst."""
    if shape.rows * shape.columns * len(shape.batch) == 0:
        return Program((), ())
    if shape.rows == 1 and shape.depth:
        row = _describe_row(shape, left, right, bias, attr)
        if row is not None:
            return row
    if shape.columns == 1 and shape.depth and not bias:
        column = _describe_column(shape, left, right, attr)
        if column is not None:
            return column
    few = _describe_few(shape, left, right, bias, attr, _FEW_ROWS.get(isa, _FEWER_ROWS))
    if few is not None:
        return few
    # The table begins with zeros, both factors of a product over nothing.
    build = NestBuilder(bytes(64))
    last = count_last_columns(shape, left, right)
    pitch = shape.columns * 4
    if last:
        whole = shape.columns - last
        describe_last_columns(build, shape, left, right, bias, attr, whole)
        strides = right.outer_strides()
        right = MemoryDesc((*right.dims[:-1], whole), "f32", strides=strides)
        shape = shape._replace(columns=whole)
    blocking = _BLOCKING.get(isa, _SMALL_CACHES)
    vectors = -(-shape.columns // 16)
    in_place = _competes(left) and vectors <= blocking.vectors
    ways = _WAYS if shape.rows <= _WAYS else _WAYS_OF_SEVERAL
    # Two vectors of each row are as many as tiles of any number of rows read.
    reads_wide = right.tag != packed_tag(right.ndims) and vectors > _PAIR
    limits = [most for most, holds in ((ways, in_place), (blocking.rows, reads_wide)) if holds]
    heights, (height, large, tiles) = product_tiles(isa, shape.rows, min(limits, default=0))
    blocks, rest = product_blocks(isa, heights[0], vectors)
    low, bound = bounds(attr)
    slices = _slices(shape, right, tiles, height, blocking) if low == -math.inf else [(0, shape.depth)]
    most = slices[0][1]
    strip_tiles = _strip_tiles(most, tiles, height, blocking)
    strips = -(-tiles // strip_tiles)
    parts = -(-vectors // blocks)
    items = len(shape.batch) * strips * parts
    room = items * blocks * (most * 64 + 64)
    rows = columns = Matrices(("t", 0), [0] * len(shape.batch), 0, 0)
    if shape.depth:
        is_far = left.outer_strides()[-1] != 1 and not _fits_far_cache(most, left.outer_strides()[-1] * 4)
        copies_rows = (blocking.copies or is_far) and parts >= _WORTH_PACKING
        rows = describe_left(build, shape, left, most, copies_rows, in_place)
        copies, wide = blocking.copies and blocks == 1, not blocking.copies and blocks > _PAIR
        columns = _columns(build, shape, right, tiles, most, room, copies, wide)
    if columns.aligns and not columns.packs:
        # The first vector of each row may have fewer columns.
        rest = 1
        items = items // parts * (((shape.columns + 30) // 16 + blocks - 1) // blocks)
    packs_near = columns.packs == "rows" and not blocking.copies and most * columns.along <= _NEAR
    if (packs_near or not columns.packs) and items < _FEW_ITEMS:
        # Each strip of fewer tiles reads the columns again, which are in the second-level cache, or packs them again.
        least = 2 * _WORTH_COPYING if packs_near else _WORTH_COPYING
        more = max(1, min(tiles // (strips * least), -(-_FEW_ITEMS // items)))
        strips, items = strips * more, items * more
    if not (columns.packs or blocking.copies) and _is_written_in_order(shape):
        more = min(tiles, -(-tiles * height * pitch // _IN_ORDER)) // strips
        strips, items = strips * max(1, more), items * max(1, more)
    packed_columns: LaunchArgument = build.book(items * blocks * (most * 64 + 64)) if columns.packs else ("i", 0)
    dst: LaunchArgument = ("m", (int(Arg.DST), 0))
    dst_matrix = shape.rows * pitch
    targets = range(0, dst_matrix * len(shape.batch), dst_matrix)
    table = build.table([n for offsets in zip(rows.offsets, columns.offsets, targets, strict=True) for n in offsets])
    sizes = (
        tiles, height, large, shape.columns, strips, rows.across, *lanes(rows, height), columns.across, columns.along,
        columns.column, pitch,
    )  # fmt: skip
    far = not (columns.packs or blocking.copies) and most * shape.columns * 4 > _ASKED
    kernel = KernelSpec.of(
        "gemm", heights=heights, blocks=blocks, rest=rest, rows=rows.along == 4, packs=columns.packs, far=far
    )
    bias_at: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if bias else ("i", 0)
    residual = chain_source(attr)
    for first, count in slices:
        if columns.is_slice:
            _pack_columns(build, shape, right, columns, first, count)
        if rows.packs:
            pack_left(build, shape, left, rows, (height, large, tiles), first, count)
        columns_at = columns.at if columns.is_slice else moved(columns.at, first * columns.along)
        is_last = first + count == shape.depth
        args: tuple[LaunchArgument, ...] = (
            moved(rows.at, first * rows.along), columns_at, bias_at, dst, residual,
            ("t", table), ("t", build.table([0, max(count, 1), 0])), *(("i", size) for size in sizes), packed_columns,
            ("i", int(columns.aligns)), ("f", low), ("f", bound if is_last else -math.inf),
        )  # fmt: skip
        build.launch(kernel, args, items)
        # The next slice adds to the sums in dst.
        bias_at, residual = ("i", 0), dst
    return build.program()


def _slices(shape: Shape, right: MemoryDesc, tiles: int, height: int, blocking: _Blocking) -> list[tuple[int, int]]:
    """Return (first, count) of the inputs that are summed at once.

    All, or so few that all rows of them, and the columns of an item, stay in the cache, and columns that are not packed are read
    from memory only once. Packed columns are read once for each strip of rows: if no cache holds them, many rows have fewer
    strips of fewer inputs. Then those of an item, and of the next, which its tiles ask for, stay in the cache for all tiles.
    """
    is_packed = right.tag == packed_tag(right.ndims) or tiles >= _WORTH_SHARING
    is_short = shape.depth <= 2 * blocking.slice or tiles < _WORTH_PACKING
    most, fits = blocking.slice, is_packed or (is_short and shape.rows * shape.depth * 4 <= blocking.strip)
    if is_packed and not blocking.copies:
        is_near = shape.columns * shape.depth * 4 <= blocking.strip
        fits = is_near or _strip_tiles(shape.depth, tiles, height, blocking) == tiles
        most = max(most, blocking.strip // (4 * shape.rows))
        if not is_near and tiles > 1 and shape.depth >= 2 * _STREAMED:
            most, fits = min(most, _STREAMED), False
    if blocking.copies:
        fits = tiles < _worth_packing(right)
        if fits and shape.rows > _PAIR and _is_far(right):
            most, fits = _FAR_SLICE, False
    if fits or shape.depth <= most:
        return [(0, shape.depth)]
    number = min(-(-shape.depth // most), blocking.slices)
    count = -(-shape.depth // (16 * number)) * 16
    return [(first, min(count, shape.depth - first)) for first in range(0, shape.depth, count)]


def _strip_tiles(depth: int, tiles: int, height: int, blocking: _Blocking) -> int:
    """Return the tiles whose rows, with so many inputs, are multiplied by all columns before the next ones."""
    return min(tiles, max(_STRIP_TILES, blocking.strip // (max(depth, 1) * height * 4)))


def _is_written_in_order(shape: Shape) -> bool:
    """Return whether long rows of results, more than caches hold, are of so few inputs that the time is that of writing them."""
    row = 4 * shape.columns
    far = row * shape.rows * len(shape.batch) >= _FAR_RESULTS and row >= _LONG_ROW
    return far and shape.depth <= _SHALLOW


def _is_far(right: MemoryDesc) -> bool:
    """Return whether columns in rows of many bytes are read in place."""
    row, column = right.outer_strides()[-2:]
    return not right.layout.blocks and column == 1 and 4 * row * right.dims[-2] >= _FAR


def _describe_row(shape: Shape, left: MemoryDesc, right: MemoryDesc, bias: bool, attr: PrimitiveAttr) -> Program | None:
    """Return the program of products of one row; None if the right factor is in a layout that must be packed."""
    strides, right_strides = ([4 * stride for stride in md.outer_strides()] for md in (left, right))
    offsets = [offset(index, strides) for index, _ in shape.batch]
    lane = strides[-1]
    block, step = 0, right_strides[-2]
    rights = [offset(index, right_strides) for _, index in shape.batch]
    if right.tag == packed_tag(right.ndims):
        order, block, step = "packed", shape.depth * 64, 64
        matrix = -(-shape.columns // 16) * block
        rights = [flat_index(index, right.dims[:-2]) * matrix for _, index in shape.batch]
    elif right_strides[-1] == 4 or shape.columns == 1:
        order = "rows"
    elif right_strides[-2] == 4 and lane == 4:
        order, step = "columns", right_strides[-1]
    else:
        return None
    pairs = list(zip(offsets, rights, strict=True))
    return describe_row(shape.depth, shape.columns, order, pairs, (lane, block, step), bias, attr)


def _describe_column(shape: Shape, left: MemoryDesc, right: MemoryDesc, attr: PrimitiveAttr) -> Program | None:
    """Return the program of products of one column, those of one row transposed; None if the left factor must be packed."""
    strides, right_strides = ([4 * stride for stride in md.outer_strides()] for md in (left, right))
    *_, row, lane = strides
    step = right_strides[-2]
    if right.layout.blocks:
        return None
    if row == 4:
        order, step_of_left = "rows", lane
    elif lane == 4 and step == 4:
        order, step_of_left = "columns", row
    else:
        return None
    pairs = [(offset(index, right_strides), offset(outer, strides)) for outer, index in shape.batch]
    return describe_row(shape.depth, shape.rows, order, pairs, (step, 0, step_of_left), False, attr, swaps=True)


def has_few_columns(rows: int, depth: int, columns: int) -> bool:
    """Return whether results are sums over lanes, if the inputs of each row are adjacent."""
    return columns <= _FEW_COLUMNS and columns < rows and columns * (depth + _REST) < 16 * depth


def _describe_few(
    shape: Shape, left: MemoryDesc, right: MemoryDesc, bias: bool, attr: PrimitiveAttr, most_rows: int
) -> Program | None:  # fmt: skip
    """Return the program of a product with few rows or columns, if it takes less time than tiles; else None."""
    if right.layout.blocks:
        return None
    strides, right_strides = ([4 * stride for stride in md.outer_strides()] for md in (left, right))
    few_columns = has_few_columns(shape.rows, shape.depth, shape.columns) and strides[-1] == 4
    few_rows = shape.rows <= most_rows and shape.depth >= _DEEP and right_strides[-2] == 4 < right_strides[-1]
    if not (few_columns or few_rows):
        return None
    build = NestBuilder()
    is_left = not few_columns
    places: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.WEIGHTS)]
    distances = [strides[-2], right_strides[-1]]
    starts = [
        [offset(pair[side], steps) for pair in shape.batch] for side, steps in enumerate((strides, right_strides))
    ]
    side, md = (0, left) if is_left else (1, right)
    if (strides[-1] if is_left else right_strides[-2]) != 4:
        # Inputs are put side by side.
        apart = md.with_tag("" if is_left else transposed_tag(md.ndims))
        place = build.book(apart.nbytes)
        build.move(md, apart, places[side], place)
        places[side], distances[side] = place, shape.depth * 4
        matrix = shape.depth * 4 * (shape.rows if is_left else shape.columns)
        starts[side] = [flat_index(pair[side], md.dims[:-2]) * matrix for pair in shape.batch]
    sizes = shape.rows, shape.depth, shape.columns
    few = "rows" if is_left else "columns"
    factors, pairs = (places[0], places[1]), list(zip(*starts, strict=True))
    describe_few(build, sizes, factors, (distances[0], distances[1]), pairs, few, bias, attr)
    return build.program()


def _competes(left: MemoryDesc) -> bool:
    """Return whether the rows of a left factor compete for the same lines of the first-level cache."""
    row, lane = left.outer_strides()[-2:]
    return lane == 1 and 4 * row % _ALIASING == 0


def describe_left(
    build: NestBuilder, shape: Shape, left: MemoryDesc, most: int, copies: bool = False, in_place: bool = False
) -> Matrices:
    """Return the left factor: where it is, or room for ``most`` inputs of each row.

    It is packed if rows compete for the cache, unless they are read ``in_place``, and with ``copies`` if the inputs of a row are
    not adjacent or in slices.
    """
    src: LaunchArgument = ("m", (int(Arg.SRC), 0))
    strides = [4 * stride for stride in left.outer_strides()]
    *_, row, lane = strides
    is_packed = copies and (lane != 4 or shape.depth > most)
    if _competes(left):
        is_packed = not in_place
    if shape.rows == 1 or not is_packed:
        return Matrices(src, [offset(index, strides) for index, _ in shape.batch], row, lane)
    outer = left.dims[:-2]
    packed_row = most * 4 + 64
    matrix = _packed_matrix(shape, packed_row)
    to = build.book(math.prod(outer) * matrix)
    return Matrices(to, [flat_index(index, outer) * matrix for index, _ in shape.batch], packed_row, 0, "rows")


def pack_left(
    build: NestBuilder, shape: Shape, left: MemoryDesc, to: Matrices, tiles: tuple[int, int, int], first: int, count: int,
) -> None:  # fmt: skip
    """Pack ``count`` inputs of each row from number ``first`` on; ``tiles`` are those of `product_tiles`."""
    strides = [4 * stride for stride in left.outer_strides()]
    *_, row, lane = strides
    matrices = [offset(index, strides) + first * lane for index in itertools.product(*map(range, left.dims[:-2]))]
    height, large, panels = tiles
    sizes = (panels, height, large, count, row if lane == 4 else lane, _packed_matrix(shape, to.across), to.across)
    table: LaunchArgument = ("t", build.table(matrices))
    args = (("m", (int(Arg.SRC), 0)), to.at, table, *(("i", value) for value in sizes))
    kernel, panels_each = KernelSpec.of("gemm_pack"), 1
    if lane != 4:
        kernel, panels_each = KernelSpec.of("gemm_pack", order="columns", together=_GROUP), _GROUP
    build.launch(kernel, args, len(matrices) * -(-panels // panels_each))


def _pack_columns(build: NestBuilder, shape: Shape, right: MemoryDesc, to: Matrices, first: int, count: int) -> None:
    """Pack ``count`` rows of each right matrix from number ``first`` on."""
    strides = [4 * stride for stride in right.outer_strides()]
    *_, row, _ = strides
    matrices = [offset(index, strides) + first * row for index in itertools.product(*map(range, right.dims[:-2]))]
    sizes = (count, shape.columns, row, -(-shape.columns // 16) * to.across, to.across)
    table: LaunchArgument = ("t", build.table(matrices))
    args = (("m", (int(Arg.WEIGHTS), 0)), to.at, table, *(("i", value) for value in sizes))
    build.launch(KernelSpec.of("gemm_columns", slab=_SLAB), args, len(matrices) * -(-count // _SLAB))


def lanes(left: Matrices, height: int) -> tuple[int, int]:
    """Return the bytes from one input of a left factor to the next, in a tile of ``height`` rows and in one of one less."""
    return (height * 4, (height - 1) * 4) if left.packs else (left.along, left.along)


def _packed_matrix(shape: Shape, packed_row: int) -> int:
    return -(-shape.rows * packed_row // 64) * 64


def _columns(
    build: NestBuilder, shape: Shape, right: MemoryDesc, tiles: int, most: int, room: int, copies: bool, wide: bool
) -> Matrices:
    """Return the right factor: packed, or to be packed by items of work if their ``room`` in bytes is not too much.

    ``most`` of its rows are read at once. With ``copies``, columns are packed unless few tiles read them. With ``wide``, tiles
    read so many columns that parts of two lines in the place of one take longer.
    """
    source: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
    packed = right.with_tag(packed_tag(right.ndims))
    matrix = -(-shape.columns // 16) * shape.depth * 64
    if right.tag != packed.tag:
        strides = [4 * stride for stride in right.outer_strides()]
        *_, row, column = strides
        offsets = [offset(index, strides) for _, index in shape.batch]
        in_rows = column == 4 or shape.columns == 1
        if column == 4 and copies and most * row <= _NEAREST:
            return Matrices(source, offsets, 64, row)
        block, outer = most * 64 + 64, right.dims[:-2]
        panels = -(-shape.columns // 16) * block
        fits = panels >= _OWN and math.prod(outer) * panels <= _SHARED
        worth = _worth_packing(right) if copies else _WORTH_PACKING
        if column == 4 and copies and (tiles >= _WORTH_SHARING or (tiles >= worth and fits)):
            to = build.book(math.prod(outer) * panels)
            starts = [flat_index(index, outer) * panels for _, index in shape.batch]
            return Matrices(to, starts, block, 64, is_slice=True)
        if in_rows and copies and worth <= tiles < _WORTH_SHARING and room <= _ROOM:
            return Matrices(source, offsets, 64, row, "rows", column)
        near = _NEAR if tiles < _WORTH_SHARING else _NEAR_FOR_MANY
        is_near = _NEAREST < most * row <= near and shape.depth > _SHALLOW
        if wide and column == 4 and is_near and tiles >= _WORTH_COPYING and room <= _ROOM:
            return Matrices(source, offsets, 64, row, "rows", column, aligns=row % _LINE == 0)
        if in_rows and (tiles < _WORTH_PACKING or most * row <= near):
            return Matrices(source, offsets, 64, row)
        stays = tiles < _WORTH_COPYING and _fits_far_cache(most, row)
        if in_rows and row % _LINE == 0 and tiles < _WORTH_SHARING and (stays or room > _ROOM):
            return Matrices(source, offsets, 64, row, aligns=True)
        if (in_rows or row == 4) and tiles < _WORTH_SHARING and room <= _ROOM:
            return Matrices(source, offsets, 16 * column, row, "rows" if in_rows else "columns", column)
        to = build.book(packed.nbytes)
        build.move(right, packed, source, to)
        source = to
    return Matrices(
        source, [flat_index(index, right.dims[:-2]) * matrix for _, index in shape.batch], shape.depth * 64, 64
    )


def _worth_packing(right: MemoryDesc) -> int:
    """Return how many tiles of rows are worth a packed copy of columns, if inputs of any rows are copied."""
    row, column = right.outer_strides()[-2:]
    are_rivals = column == 1 and not right.layout.blocks and 4 * row % _ALIASING == 0 and right.dims[-2] >= _RIVALS
    return _WORTH_PACKING_RIVALS if are_rivals else _WORTH_PACKING


def _fits_far_cache(rows: int, row: int) -> bool:
    """Return whether the second-level cache holds a line of so many rows, which are ``row`` bytes apart."""
    return rows * math.gcd(row, _FAR_ALIASING) < _FAR_WAYS * _FAR_ALIASING
