"""Collects a program that moves memory with strided loop nests, and launches other kernels on the copies."""

from __future__ import annotations

import itertools
import struct

from ...desc import MemoryDesc, item_size
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .loop_nest import PIECE, Loop, Nest, common_group, copies, fills, grouped, pieces, steps

#: A launch has at least about so many items of work if its nest allows; the other loops run inside an item.
_ITEMS = 64
#: Places in memory that a copy writes to in turn, at most: the first-level cache of addresses has 64 pages or more.
_PLACES = 32
#: Bytes of the widest elements that the kernel moves.
_WIDEST = 8
#: How the kernel runs the innermost pair of loops.
_COPY, _TRANSPOSE, _FILL, _COPY_PADDED, _TRANSPOSE_PADDED, _REPEAT, _REPEAT_ROW = range(7)
#: Bytes that the kernel writes of a repeated element, or row, at least.
_REPEATED = 64
#: Bytes of a row that it repeats, at most.
_SHORT = 63


class NestBuilder:
    """Collects the kernels, launches, tables and scratchpad of a program, with the launches that move memory.

    ``tables`` are bytes that the tables begin with.
    """

    def __init__(self, tables: bytes = b"") -> None:
        self._scratchpad = 0
        self._kernels: list[KernelSpec] = []
        self._launches: list[Launch] = []
        self._tables = tables

    def program(self) -> Program:
        """Return the program."""
        return Program(tuple(self._kernels), tuple(self._launches), self._tables, self._scratchpad)

    def book(self, nbytes: int) -> LaunchArgument:
        """Book scratchpad, aligned to 64 bytes and with 64 bytes to over-read, and return its place."""
        start = self._scratchpad
        self._scratchpad += (nbytes + 127) // 64 * 64
        return ("s", start)

    def table(self, values: list[int]) -> int:
        """Add int64 values to the tables and return their offset."""
        start = len(self._tables)
        self._tables += struct.pack(f"<{len(values)}q", *values)
        return start

    def launch(self, kernel: KernelSpec, args: tuple[LaunchArgument, ...], work: int) -> None:
        """Add a launch of a kernel, which may have been added before."""
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        self._launches.append(Launch(self._kernels.index(kernel), args, work))

    def move(
        self, src: MemoryDesc, dst: MemoryDesc, source: LaunchArgument, to: LaunchArgument, wraps: bool = False
    ) -> None:
        """Add the launches that move ``src`` at one place to ``dst`` at another. Raises IncompatibleBlocks.

        Integers that become others lose the high bits that do not fit if the move ``wraps``.
        """
        records: list[int] = []
        items, turns = 0, False
        filled, copied, sizes = fills(src, dst), copies(src, dst), (item_size(src.dtype), item_size(dst.dtype))
        kinds = (src.dtype, dst.dtype)
        if src.dtype == dst.dtype:
            group = 1 if filled else common_group(copied, _WIDEST // sizes[0])
            copied, sizes = [grouped(nest, group) for nest in copied], (sizes[0] * group,) * 2
            kinds = (f"bits{8 * sizes[0]}",) * 2
        for mode, nests in ((_FILL, filled), (None, copied)):
            for nest in nests:
                for piece in itertools.chain.from_iterable(map(_evenly, pieces(nest))):
                    record, count = _record(mode, piece, *sizes, kinds[0] == kinds[1])
                    turns = turns or record[0] in (_TRANSPOSE, _TRANSPOSE_PADDED)
                    items += count
                    records += [items, 8 * (len(record) + 2), *record]
        wraps = wraps and kinds[0] != kinds[1]
        kernel = KernelSpec.of("reorder", src=kinds[0], dst=kinds[1], turns=turns, wraps=wraps)
        self.launch(kernel, (source, to, ("t", self.table(records))), items)


def bits(dtype: str) -> str:
    """Return what kernels call elements of a data type that they copy: one kernel serves all of a width."""
    return f"bits{8 * item_size(dtype)}"


def _evenly(nest: Nest) -> list[Nest]:
    """Cut the loop whose steps items share if no number of them near an item's divides it: a prime number of rows."""
    column = next((i for i, loop in enumerate(nest.loops) if loop.dst == 1), None)
    adjacent = next((i for i, loop in enumerate(nest.loops) if loop.src == 1), None)
    left = [i for i in range(len(nest.loops)) if i not in (column, adjacent)]
    length = 1 if column is None else nest.loops[column].extent
    if left and adjacent in (None, column) and nest.loops[left[-1]].extent * length <= PIECE:
        left.pop()
    while left and _steps(nest, left[:-1]) >= _ITEMS:
        left.pop()
    if not left:
        return [nest]
    loop, most = nest.loops[left[-1]], _steps(nest, left) // _ITEMS
    if most > loop.extent or any(loop.extent % few == 0 for few in range(max(1, most), most // 2, -1)):
        return [nest]
    whole = loop.extent // most * most
    head, rest = (
        (*nest.loops[: left[-1]], loop._replace(extent=extent), *nest.loops[left[-1] + 1 :])
        for extent in (whole, loop.extent - whole)
    )
    tail = nest._replace(loops=rest, src=nest.src + whole * loop.src, dst=nest.dst + whole * loop.dst)
    return [nest._replace(loops=head), *_evenly(tail)]


def _steps(nest: Nest, numbers: list[int]) -> int:
    return steps(tuple(nest.loops[number] for number in numbers))


def _divisor(extent: int, most: int) -> int:
    """Return the greatest divisor of an extent up to ``most``."""
    return next((few for few in range(min(most, extent), 1, -1) if extent % few == 0), 1)


def _record(mode: int | None, nest: Nest, src_size: int, dst_size: int, same: bool) -> tuple[list[int], int]:
    """Return the kernel's record of a nest, from the mode on, and the steps of its outer loops; sizes are in bytes.

    Elements that are the ``same`` in src and dst need no conversion.
    """
    loops = list(nest.loops)
    column = _take(loops, next((i for i, loop in enumerate(loops) if loop.dst == 1), None))
    repeats = mode is None and same and column.src == 0 and column.extent * dst_size >= _REPEATED and not nest.pads
    if mode == _FILL or column.src == 1 or column.extent == 1 or repeats:
        mode = mode or (_REPEAT if repeats else _COPY_PADDED if nest.pads else _COPY)
        row = Loop(1, 0, 0)
        if _reads_ahead(mode, loops):
            loops[-2:] = _few_places(loops[-2], loops[-1])
        if loops and (loops[-1].extent * column.extent <= PIECE or steps(tuple(loops[:-1])) >= _ITEMS):
            row = loops.pop()
        elif loops:
            loops[-1:], row = _shared(loops[-1], steps(tuple(loops[:-1])))
        if mode == _COPY and same and _repeats_row(row, column, dst_size):
            mode = _REPEAT_ROW
        innermost = (row.extent, row.src * src_size, row.dst * dst_size, column.extent)
    else:
        mode = _TRANSPOSE_PADDED if nest.pads else _TRANSPOSE
        adjacent = _take(loops, next((i for i, loop in enumerate(loops) if loop.src == 1), None))
        innermost = (column.extent, column.src * src_size, adjacent.dst * dst_size, adjacent.extent)
    inside = [Loop(1, 0, 0), Loop(1, 0, 0)]
    for number in (1, 0):
        if loops and steps(tuple(loops[:-1])) >= _ITEMS:
            inside[number] = loops.pop()
        elif loops:
            loops[-1:], inside[number] = _shared(loops[-1], steps(tuple(loops[:-1])))
            break
    pair, outer = (
        [value for loop in chosen for value in (loop.extent, loop.src * src_size, loop.dst * dst_size)]
        for chosen in (inside, reversed(loops))
    )
    return [mode, nest.src * src_size, nest.dst * dst_size, *pair, *innermost, len(loops), *outer], steps(tuple(loops))


def _repeats_row(row: Loop, column: Loop, size: int) -> bool:
    """Return whether one short row of elements of a size in bytes is written again and again, without gaps."""
    short = column.dst == 1 and column.extent * size <= _SHORT
    return short and row.src == 0 and row.dst == column.extent and row.extent * row.dst * size >= _REPEATED


def _shared(loop: Loop, before: int) -> tuple[list[Loop], Loop]:
    """Return a loop in two, of which the inner one has the most steps that leave enough items of work."""
    inner = _divisor(loop.extent, before * loop.extent // _ITEMS)
    outer = Loop(loop.extent // inner, loop.src * inner, loop.dst * inner)
    return [outer] if outer.extent > 1 else [], Loop(inner, loop.src, loop.dst)


def _reads_ahead(mode: int, loops: list[Loop]) -> bool:
    """Return whether a copy had better read in order than write in order: into few places, each on a page of its own."""
    return mode == _COPY and len(loops) > 1 and loops[-2].src < loops[-1].src and _places(loops[-2]) > 1


def _few_places(places: Loop, rows: Loop) -> list[Loop]:
    """Return loops over rows that are read in order, each written to few places at a time."""
    few = _places(places)
    inner = Loop(few, places.src, places.dst)
    if few == places.extent:
        return [rows, inner]
    return [Loop(places.extent // few, places.src * few, places.dst * few), rows, inner]


def _places(places: Loop) -> int:
    """Return the most places that divide those of a loop, up to the limit."""
    return next(few for few in range(min(places.extent, _PLACES), 0, -1) if places.extent % few == 0)


def _take(loops: list[Loop], index: int | None) -> Loop:
    return Loop(1, 1, 1) if index is None else loops.pop(index)
