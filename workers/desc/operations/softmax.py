"""Softmax and its logarithm along an axis."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, complete_gradients, one_of, require


@dataclass(frozen=True, slots=True)
class Softmax(OpDesc):
    """Normalise exponentials along an axis; ``log`` gives their logarithm. The gradient is computed from dst."""

    kind: ClassVar[str] = "softmax"
    src: MemoryDesc
    dst: MemoryDesc
    axis: int
    algorithm: str = "accurate"
    prop: str = "forward_inference"
    diff_src: MemoryDesc | None = None
    diff_dst: MemoryDesc | None = None

    def __post_init__(self) -> None:
        one_of("prop", self.prop, (*FORWARD, "backward_data"))
        one_of("algorithm", self.algorithm, ("accurate", "log"))
        require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        complete_gradients(self)

    def memories(self) -> dict[int, MemoryDesc]:
        if self.diff_src is None or self.diff_dst is None:
            return {Arg.SRC: self.src, Arg.DST: self.dst}
        return {Arg.DST: self.dst, Arg.DIFF_SRC: self.diff_src, Arg.DIFF_DST: self.diff_dst}
