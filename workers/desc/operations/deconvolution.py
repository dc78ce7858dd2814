"""Deconvolution: the transpose of a convolution, as a forward operation."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require
from .weighted import require_channels, weighted
from .window import require_window, windowed


@dataclass(frozen=True, slots=True)
class Deconvolution(OpDesc):
    """Transpose a convolution: src (N, IC, *spatial), weights (OC, IC/groups, *kernel), optional bias (OC).

    dst (N, OC, *spatial) is what a convolution with these strides, dilations and paddings takes to sizes of src.
    """

    kind: ClassVar[str] = "deconvolution"
    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc | None
    dst: MemoryDesc
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    groups: int = 1
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        one_of("prop", self.prop, FORWARD)
        outputs, spatial = require_channels(self), self.src.ndims - 2
        require_window(self, spatial)
        require(
            self.dst.ndims == self.src.ndims and self.dst.dims[:2] == (self.src.dims[0], outputs),
            "dst",
            f"expect {(self.src.dims[0], outputs)} and {spatial} spatial dimensions, got {self.dst.dims}",
        )
        back = windowed(self.dst.dims[2:], self.weights.dims[2:], self)
        require(back == self.src.dims[2:], "dst", f"a convolution takes {self.dst.dims[2:]} to {back}, not src's sizes")

    def memories(self) -> dict[int, MemoryDesc]:
        return weighted(self.prop, self.src, self.weights, self.bias, self.dst)
