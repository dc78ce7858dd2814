"""How scales and zero points that differ along some dimensions move along the rows of a tensor in memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ...desc import MemoryDesc

#: Elements of one item of work; the kernels' own.
CHUNK = 4096


class Rows(NamedTuple):
    """Rows of ``inner`` elements, the last maybe shorter, of ``elements`` in all.

    Each has a number of its own (``row``), or one for each of its elements (``lanes``), or there is one number (""). Numbers
    are those of ``repeat`` rows, one after the other; after ``period`` numbers or rows of numbers, they begin again.
    """

    along: str
    inner: int
    elements: int
    repeat: int = 1
    period: int = 1

    @property
    def together(self) -> int:
        """The rows of an item of work."""
        return max(1, CHUNK // self.inner)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return -(-self.elements // self.inner)

    @property
    def work(self) -> int:
        """How many items of work there are."""
        return -(-self.rows // self.together)

    def numbers(self) -> tuple[tuple[str, int], ...]:
        """Return the kernels' geometry."""
        found = (self.inner, self.elements, self.together, self.rows, self.repeat, self.period)
        return tuple(("i", number) for number in found)


def rows_of(md: MemoryDesc, varies: Sequence[int]) -> Rows | None:
    """Return the rows of a tensor with elements whose numbers vary along some dimensions, None if there is no such form.

    The dimensions are in the order of those numbers in memory. The layout has no blocks if they vary, and no padding.
    """
    count = math.prod(md.dims)
    order = [dim for dim in md.layout.order if md.dims[dim] != 1]
    chosen = [dim for dim in order if dim in varies]
    if not chosen:
        return Rows("", CHUNK, count)
    if md.layout.blocks or chosen != [dim for dim in varies if md.dims[dim] != 1]:
        return None
    # Runs of neighbouring dimensions that vary, or do not: [whether, elements].
    runs: list[tuple[bool, int]] = []
    for dim in order:
        does, size = dim in varies, md.dims[dim]
        if runs and runs[-1][0] == does:
            size *= runs.pop()[1]
        runs.append((does, size))
    if not runs[0][0]:
        # Numbers begin again behind the last.
        del runs[0]
    if len(runs) > 3:
        return None
    sizes = [size for _, size in runs]
    if len(runs) == 2:
        return Rows("row", sizes[1], count, 1, sizes[0])
    if len(runs) == 3:
        return Rows("lanes", sizes[2], count, sizes[1], sizes[0])
    if sizes[0] == count:
        # Each element has a number of its own.
        return Rows("lanes", min(CHUNK, count), count, 1, -(-count // CHUNK))
    return Rows("lanes", sizes[0], count)
