"""Local response normalisation across channels."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Lrn(OpDesc):
    """Normalise: x / (k + alpha / count * sum of squares over a window) ** beta.

    The window is ``local_size`` channels, or ``local_size`` along each spatial dimension ``within_channel``; count is its
    number of elements, those outside of src included.
    """

    kind: ClassVar[str] = "lrn"
    src: MemoryDesc
    dst: MemoryDesc
    local_size: int
    alpha: float
    beta: float
    k: float
    algorithm: str = "across_channels"
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ("across_channels", "within_channel"))
        one_of("prop", self.prop, FORWARD)
        require(self.src.ndims >= 2, "src", "expect (N, C, ...)")
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(self.local_size >= 1, "local_size", f"must be at least 1, got {self.local_size}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
