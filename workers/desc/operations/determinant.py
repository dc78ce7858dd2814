"""Determinant: of square matrices."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Determinant(OpDesc):
    """Multiply the pivots of each matrix of src (B, N, N): dst is (B,).

    A pivot is the greatest element of what is left of a column. If it is 0, so is the determinant. All steps are in float64. The
    determinant of a matrix without rows is 1.
    """

    kind: ClassVar[str] = "determinant"
    src: MemoryDesc
    dst: MemoryDesc

    def __post_init__(self) -> None:
        fits = self.src.ndims == 3 and self.src.dims[1] == self.src.dims[2]
        require(fits, "src", f"expect (B, N, N), got {self.src.dims}")
        require(self.dst.dims == self.src.dims[:1], "dst", f"expect {self.src.dims[:1]}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
