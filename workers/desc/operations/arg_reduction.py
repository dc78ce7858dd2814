"""Arg reduction: where the largest or smallest elements along an axis are."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require

ARG_ALGORITHMS: Final = ("max", "min")


@dataclass(frozen=True, slots=True)
class ArgReduction(OpDesc):
    """Return the index of the largest or smallest element along an axis: of equal ones the first, or the last.

    The first NaN (or the last) counts as larger, and as smaller, than all numbers, as in NumPy. dst has a size of 1 along
    the axis, and a data type that holds the indices.
    """

    kind: ClassVar[str] = "arg_reduction"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    axis: int
    select_last: bool = False

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ARG_ALGORITHMS)
        require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
        expected = tuple(1 if dim == self.axis else size for dim, size in enumerate(self.src.dims))
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")
        filled = self.src.dims[self.axis] > 0 or 0 in self.dst.dims
        require(filled, "src", f"it has no elements along axis {self.axis}: {self.src.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
