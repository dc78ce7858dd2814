"""Scatter: parts or elements of a tensor replaced at indices."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require
from .gather import require_indices, require_within

SCATTER_ALGORITHMS: Final = ("elements", "nd")
SCATTER_REDUCTIONS: Final = ("none", "add", "mul", "min", "max")


@dataclass(frozen=True, slots=True)
class Scatter(OpDesc):
    """Copy src and combine updates with it at indices, in the order of the indices. One that is out of range does nothing.

    ``elements``: indices and updates have one shape; an index replaces the element's own along ``axis``.
    ``nd``: the last dimension of the indices has one index for each of the first dimensions of src, as many as there are;
    updates have the other dimensions of the indices, then those of src that have no index.
    A ``reduction`` other than none combines an update with what is there, after the updates before it: their sum, product,
    or the smaller or larger of both; sums and products of integers of one type wrap. Indices are s32 or s64; negative ones
    count from the end.
    """

    kind: ClassVar[str] = "scatter"
    src: MemoryDesc
    indices: MemoryDesc
    updates: MemoryDesc
    dst: MemoryDesc
    algorithm: str = "elements"
    axis: int = 0
    reduction: str = "none"

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, SCATTER_ALGORITHMS)
        one_of("reduction", self.reduction, SCATTER_REDUCTIONS)
        require_indices(self.indices)
        require(self.dst.dims == self.src.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        if self.algorithm == "elements":
            require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
            require_within(self.src, self.indices, self.axis)
            expected = self.indices.dims
        else:
            require(self.axis == 0, "axis", f"nd has none, got {self.axis}")
            require(self.indices.ndims >= 1, "indices", "expect at least one dimension, got none")
            count, most = self.indices.dims[-1], self.src.ndims
            require(count <= most, "indices", f"expect at most {most} indices for {self.src.dims}, got {count}")
            expected = (*self.indices.dims[:-1], *self.src.dims[count:])
        require(self.updates.dims == expected, "updates", f"expect {expected}, got {self.updates.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.SRC_1: self.indices, Arg.SRC_2: self.updates, Arg.DST: self.dst}
