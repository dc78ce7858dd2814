"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Softmax(OpDesc):
    """Normalise exponentials along an axis; ``log`` gives their logarithm."""

    kind: ClassVar[str] = "softmax"
    src: MemoryDesc
    dst: MemoryDesc
    axis: int
    algorithm: str = "accurate"

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ("accurate", "log"))
        require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
