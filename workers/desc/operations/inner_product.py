"""Inner product: a fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class InnerProduct(OpDesc):
    """Multiply src (N, IC) by the transpose of weights (OC, IC); optional bias (OC,), dst (N, OC)."""

    kind: ClassVar[str] = "inner_product"
    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc | None
    dst: MemoryDesc

    def __post_init__(self) -> None:
        require(self.src.ndims == 2 and self.weights.ndims == 2, "weights", "src and weights must be of rank 2")
        require(self.weights.dims[1] == self.src.dims[1], "weights", f"expect IC = {self.src.dims[1]}")
        outputs = self.weights.dims[0]
        require(self.dst.dims == (self.src.dims[0], outputs), "dst", f"expect {(self.src.dims[0], outputs)}")
        require(self.bias is None or self.bias.dims == (outputs,), "bias", f"expect ({outputs},)")

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc] = {Arg.SRC: self.src, Arg.WEIGHTS: self.weights, Arg.DST: self.dst}
        return {**found, Arg.BIAS: self.bias} if self.bias else found
