"""Top k: the largest or smallest elements along an axis, and where they are."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class TopK(OpDesc):
    """Return the ``k`` largest elements along an axis, or the smallest, best first, and their indices.

    Of equal elements, the first come first. NaN counts as larger, and as smaller, than all numbers.
    """

    kind: ClassVar[str] = "top_k"
    src: MemoryDesc
    dst: MemoryDesc
    indices: MemoryDesc
    k: int
    axis: int
    largest: bool = True

    def __post_init__(self) -> None:
        require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
        size = self.src.dims[self.axis]
        require(
            1 <= self.k <= size, "k", f"expect 1..{size} like dimension {self.axis} of {self.src.dims}, got {self.k}"
        )
        expected = (*self.src.dims[: self.axis], self.k, *self.src.dims[self.axis + 1 :])
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")
        require(self.indices.dims == expected, "indices", f"expect {expected}, got {self.indices.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst, Arg.DST_1: self.indices}
