"""Eltwise: a function of one variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..attributes import ELTWISE_ALGORITHMS
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Eltwise(OpDesc):
    """Apply a function of one variable to every element; alpha and beta as in oneDNN (relu's alpha is its negative slope)."""

    kind: ClassVar[str] = "eltwise"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ELTWISE_ALGORITHMS)
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
