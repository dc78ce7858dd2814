"""Non-zero: the indices of the elements that are not 0."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class NonZero(OpDesc):
    """Find the elements of src that are not 0, in row-major order; NaN is not 0.

    A column of ``indices`` (dimensions of src, elements of src) has the index of one of them along each dimension. ``count`` is
    the number of columns that are used, which come first; the others are zeros.
    """

    kind: ClassVar[str] = "non_zero"
    src: MemoryDesc
    indices: MemoryDesc
    count: MemoryDesc

    def __post_init__(self) -> None:
        require(self.src.ndims > 0, "src", "expect a dimension or more, got none")
        expected = (self.src.ndims, self.src.elements)
        require(self.indices.dims == expected, "indices", f"expect {expected}, got {self.indices.dims}")
        require(self.count.dims == (1,), "count", f"expect (1,), got {self.count.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.indices, Arg.DST_1: self.count}
