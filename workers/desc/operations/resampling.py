"""Resampling: spatial dimensions made larger or smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Resampling(OpDesc):
    """Resample src (N, C, *spatial) to the spatial sizes of dst, by the nearest element or linearly.

    Element i of dst is at x = (i + 0.5) * src size / dst size - 0.5 in src. ``nearest`` takes round(x), halves up;
    ``linear`` weighs the two neighbours along each dimension, the edges repeated (oneDNN's definition).
    """

    kind: ClassVar[str] = "resampling"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ("nearest", "linear"))
        one_of("prop", self.prop, FORWARD)
        require(self.src.ndims >= 3, "src", "expect (N, C, *spatial)")
        require(
            self.dst.ndims == self.src.ndims and self.dst.dims[:2] == self.src.dims[:2],
            "dst",
            f"expect {self.src.dims[:2]} and {self.src.ndims - 2} spatial dimensions, got {self.dst.dims}",
        )
        require(0 not in self.src.dims[2:] or 0 in self.dst.dims, "src", "there is nothing to resample")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
