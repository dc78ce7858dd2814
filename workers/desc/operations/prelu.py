"""Parametric relu: negative elements times a slope that is a tensor."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Prelu(OpDesc):
    """Multiply negative elements of src by weights of the same rank, broadcast along dimensions of 1."""

    kind: ClassVar[str] = "prelu"
    src: MemoryDesc
    weights: MemoryDesc
    dst: MemoryDesc
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        one_of("prop", self.prop, FORWARD)
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        fits = self.weights.ndims == self.src.ndims and all(
            w in (1, s) for w, s in zip(self.weights.dims, self.src.dims, strict=True)
        )
        require(fits, "weights", f"{self.weights.dims} does not broadcast to {self.src.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.WEIGHTS: self.weights, Arg.DST: self.dst}
