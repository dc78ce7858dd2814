"""Batch normalisation with given statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class BatchNormalization(OpDesc):
    """Normalise src (N, C, ...) with given statistics: (x - mean) / sqrt(variance + epsilon) * scale + shift, each (C,)."""

    kind: ClassVar[str] = "batch_normalization"
    src: MemoryDesc
    dst: MemoryDesc
    epsilon: float

    def __post_init__(self) -> None:
        require(self.src.ndims >= 2, "src", "expect (N, C, ...)")
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(self.epsilon >= 0.0, "epsilon", f"must not be negative, got {self.epsilon}")

    def memories(self) -> dict[int, MemoryDesc]:
        channel = MemoryDesc((self.src.dims[1],), "f32")
        statistics: dict[int, MemoryDesc] = dict.fromkeys((Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT), channel)
        return {Arg.SRC: self.src, **statistics, Arg.DST: self.dst}
