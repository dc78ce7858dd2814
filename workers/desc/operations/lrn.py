"""Local response normalisation across channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Lrn(OpDesc):
    """Normalise across channels: x / (k + alpha / size * sum of squares over ``size`` channels) ** beta."""

    kind: ClassVar[str] = "lrn"
    src: MemoryDesc
    dst: MemoryDesc
    local_size: int
    alpha: float
    beta: float
    k: float

    def __post_init__(self) -> None:
        require(self.src.ndims >= 2, "src", "expect (N, C, ...)")
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(self.local_size >= 1, "local_size", f"must be at least 1, got {self.local_size}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
