"""Reorder: between any two layouts of types of four bytes, padding of the destination zeroed."""

from __future__ import annotations

import struct

from ..desc import Arg, MemoryDesc, PrimitiveAttr, Reorder, item_size
from ..engines.target import Target
from .loop_nest import PIECE, IncompatibleBlocks, Loop, Nest, copies, fills, pieces, steps
from .opencl.reorder import OPENCL_IMPLEMENTATIONS
from .program import KernelSpec, Launch, LaunchArgument, Program

#: A launch has at least about so many items of work where its nest allows; the other loops run inside of an item.
_ITEMS = 64


class NativeReorder:
    """Strided nests moved row by row, or by 16 x 16 transposition where the contiguous dimensions differ."""

    name = "native:nest"
    engine_kind = "cpu"

    def reject(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.dtype != op.dst.dtype:
            return f"conversion from {op.src.dtype} to {op.dst.dtype}"
        if item_size(op.src.dtype) != 4:
            return f"data type {op.src.dtype}; only types of four bytes are supported"
        return "post-ops are not supported" if attr.post_ops else None

    def complete(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Reorder:
        return op

    def program(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestBuilder()
        if op.dst.elements == 0:
            return build.program()
        source: LaunchArgument = ("m", (int(Arg.SRC), 0))
        to: LaunchArgument = ("m", (int(Arg.DST), 0))
        try:
            build.move(op.src, op.dst, source, to)
        except IncompatibleBlocks:
            # Blocks that do not divide one another: through row-major memory, whose blocks divide everything.
            plain = op.src.with_tag("")
            between = build.book(plain.nbytes)
            build.move(op.src, plain, source, between)
            build.move(plain, op.dst, between, to)
        return build.program()


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
        """Return what was collected."""
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

    def move(self, src: MemoryDesc, dst: MemoryDesc, source: LaunchArgument, to: LaunchArgument) -> None:
        """Add the launches that move ``src`` at one place to ``dst`` at another. Raises IncompatibleBlocks."""
        nests = copies(src, dst)
        for nest in fills(src, dst):
            self._nest("fill", nest, to, to)
        for nest in nests:
            for piece in pieces(nest):
                self._nest("", piece, source, to)

    def _nest(self, mode: str, nest: Nest, source: LaunchArgument, to: LaunchArgument) -> None:
        loops = list(nest.loops)
        column = _take(loops, next((i for i, loop in enumerate(loops) if loop.dst == 1), None))
        if mode == "fill" or column.src == 1 or column.extent == 1:
            mode = mode or "copy"
            row = Loop(1, 0, 0)
            if loops and (loops[-1].extent * column.extent <= PIECE or steps(tuple(loops[:-1])) >= _ITEMS):
                row = loops.pop()
            innermost = (row.extent, row.src * 4, row.dst * 4, column.extent)
        else:
            mode = "transpose"
            adjacent = _take(loops, next((i for i, loop in enumerate(loops) if loop.src == 1), None))
            innermost = (column.extent, column.src * 4, adjacent.dst * 4, adjacent.extent)
        inside = [Loop(1, 0, 0), Loop(1, 0, 0)]
        for number in (1, 0):
            if loops and steps(tuple(loops[:-1])) >= _ITEMS:
                inside[number] = loops.pop()
        table = self.table([value for loop in reversed(loops) for value in (loop.extent, loop.src * 4, loop.dst * 4)])
        pair = [value for loop in inside for value in (loop.extent, loop.src * 4, loop.dst * 4)]
        args: tuple[LaunchArgument, ...] = (
            _shifted(source, nest.src * 4), _shifted(to, nest.dst * 4), ("t", table),
            *(("i", value) for value in (len(loops), *pair, *innermost)),
        )  # fmt: skip
        self.launch(KernelSpec.of("reorder", mode=mode), args, steps(tuple(loops)))


def _take(loops: list[Loop], index: int | None) -> Loop:
    return Loop(1, 1, 1) if index is None else loops.pop(index)


def _shifted(place: LaunchArgument, nbytes: int) -> LaunchArgument:
    where, value = place
    return (where, (value[0], value[1] + nbytes)) if isinstance(value, tuple) else (where, value + nbytes)


CPU_IMPLEMENTATIONS = (NativeReorder(),)
IMPLEMENTATIONS = (*CPU_IMPLEMENTATIONS, *OPENCL_IMPLEMENTATIONS)
