"""Cumulative sum: the sums of the elements up to each one along an axis."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class CumulativeSum(OpDesc):
    """Sum the elements of src along an axis up to each one, which an ``exclusive`` sum leaves out; in ``reverse`` from the end.

    Floats are added up in f64. Sums of integers wrap as NumPy's do, those of s32, s8 and u8 too.
    """

    kind: ClassVar[str] = "cumulative_sum"
    src: MemoryDesc
    dst: MemoryDesc
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
        require(self.dst.dims == self.src.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
