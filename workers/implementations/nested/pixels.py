"""Images viewed as matrices with a row a pixel, one for each group of channels; other layouts are reordered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import MemoryDesc, item_size
from ..program import LaunchArgument
from .builder import NestedBuilder, shifted
from .product import MatrixView, Operand


@dataclass(frozen=True, slots=True)
class Pixels:
    """A tensor (N, C, ...), in any layout, and into how many groups its channels divide."""

    md: MemoryDesc
    groups: int = 1

    @property
    def together(self) -> MatrixView:
        """All channels of a pixel side by side, as one matrix."""
        rows = self.md.dims[0] * math.prod(self.md.dims[2:])
        return MatrixView(self.md, channels_last(self.md), MemoryDesc((rows, self.md.dims[1]), self.md.dtype))

    def read(self, build: NestedBuilder, at: LaunchArgument) -> list[Operand]:
        """Return the matrix of each group of a tensor at a place."""
        if self.groups == 1:
            return [self.together.read(build, at)]
        there, rows = self._divided()
        return self._each(build.reorder_once(there, build.reorder_once(self.md, at, self._lying), rows))

    @contextmanager
    def written(self, build: NestedBuilder, at: LaunchArgument) -> Iterator[list[Operand]]:
        """Yield the matrix of each group to compute into; add their reorder to the tensor's place."""
        if self.groups == 1:
            with self.together.written(build, at) as whole:
                yield [whole]
            return
        there, rows = self._divided()
        between = build.book(rows.nbytes)
        yield self._each(between)
        if self._lying == self.md:
            build.move(rows, between, there, at)
        else:
            to = build.book(self._lying.nbytes)
            build.move(rows, between, there, to)
            build.move(self._lying, to, self.md, at)

    @property
    def _lying(self) -> MemoryDesc:
        """The layout that is divided into groups: blocks may cross from one to the next."""
        return self.md.with_tag("") if self.md.layout.blocks else self.md

    def _divided(self) -> tuple[MemoryDesc, MemoryDesc]:
        """Return the tensor as (N, groups, channels, ...), in its layout and with the groups outermost, channels innermost."""
        batch, channels, *spatial = self.md.dims
        each = channels // self.groups
        steps = self._lying.outer_strides()
        dims = (batch, self.groups, each, *spatial)
        there = MemoryDesc(dims, self.md.dtype, strides=(steps[0], steps[1] * each, *steps[1:]))
        return there, MemoryDesc(dims, self.md.dtype, f"ba{'defghijkl'[: len(spatial)]}c")

    def _each(self, at: LaunchArgument) -> list[Operand]:
        batch, channels, *spatial = self.md.dims
        return matrices(
            MemoryDesc((batch * math.prod(spatial), channels // self.groups), self.md.dtype), at, self.groups
        )


def matrices(md: MemoryDesc, at: LaunchArgument, count: int) -> list[Operand]:
    """Return row-major matrices, one behind the other."""
    return [Operand(md, shifted(at, number * md.elements * item_size(md.dtype))) for number in range(count)]


def channels_last(md: MemoryDesc) -> MemoryDesc:
    """Return the layout with all channels of a pixel side by side."""
    return md.with_tag(f"a{'cdefghijkl'[: md.ndims - 2]}b")
