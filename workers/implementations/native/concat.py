"""Concat: rows of every source copied to their place, four sources a launch, in any layout that all tensors share."""

from __future__ import annotations

import math

from ...desc import Arg, Concat, MemoryDesc, PrimitiveAttr, multiple_src
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..layouts import complete_sources
from ..program import Launch, LaunchArgument, Program
from .blocks import CHUNK, EVERY_TYPE, LANES, is_blocked, refuse, refuse_different
from .implementation import NativeImplementation
from .nest_builder import bits

#: Sources that one launch of the kernel copies.
_MOST = 4


class NativeConcat(NativeImplementation[Concat]):
    """All dimensions outside of the axis make a row; with blocked channels, sources must begin on a block."""

    name = "native:concat"
    stays_inside = True

    def reject(self, op: Concat, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops:
            return "concat takes no post-ops"
        op = self.complete(op, attr, target)
        every = (*op.srcs, op.dst)
        refused = refuse(*every, dtypes=EVERY_TYPE) or refuse_different(*every)
        if refused is None and op.axis == 1 and is_blocked(op.dst):
            first = 0
            for source in op.srcs:
                if first % LANES and source.dims[1]:
                    return f"a source begins at channel {first}, inside of a block of {LANES}"
                first += source.dims[1]
        return refused

    def complete(self, op: Concat, attr: PrimitiveAttr, target: Target) -> Concat:
        return complete_sources(op)

    def program(self, op: Concat, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        row = _row(op.dst, op.axis)
        lines = math.prod(op.dst.padded_dims) // row
        sources = []
        place = 0
        for index, source in enumerate(op.srcs):
            if source.elements:
                sources.append((multiple_src(index), _row(source, op.axis), place))
                place += sources[-1][1]
        launches = [_launch(sources[i : i + _MOST], row, lines) for i in range(0, len(sources), _MOST)]
        return Program((KernelSpec.of("concat", kind=bits(op.dst.dtype)),), tuple(launches))


def _row(md: MemoryDesc, axis: int) -> int:
    """Return the elements between two steps of the dimension outside of ``axis``: everything from the axis inwards."""
    return md.outer_strides()[axis] * (md.padded_dims[axis] // md.layout.block_of(axis))


def _launch(sources: list[tuple[int, int, int]], row: int, lines: int) -> Launch:
    block = CHUNK // row
    args: list[LaunchArgument] = [("m", (Arg.DST, 0)), ("i", row), ("i", lines), ("i", block), ("i", CHUNK)]
    items = 0
    for arg, length, place in sources:
        items += lines * -(-length // CHUNK)
        args += [("m", (arg, 0)), ("i", length), ("i", place), ("i", items)]
    for _ in range(_MOST - len(sources)):
        args += [("i", 0), ("i", 0), ("i", 0), ("i", items)]
    return Launch(0, tuple(args), -(-lines // block) if block else items)


IMPLEMENTATIONS = (NativeConcat(),)
