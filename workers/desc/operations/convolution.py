"""Convolution: a weighted window moved over spatial dimensions."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require
from .weighted import require_channels, weighted
from .window import require_window, windowed


@dataclass(frozen=True, slots=True)
class Convolution(OpDesc):
    """Cross-correlate: src (N, IC, *spatial), weights (OC, IC/groups, *kernel), optional bias (OC), dst (N, OC, *spatial).

    Backward, src, weights, bias and dst describe the gradients that take their places.
    """

    kind: ClassVar[str] = "convolution"
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
        one_of("prop", self.prop, (*FORWARD, "backward_data", "backward_weights"))
        require(self.bias is None or self.prop != "backward_data", "bias", "the gradient of src needs none")
        outputs, spatial = require_channels(self), self.src.ndims - 2
        require_window(self, spatial)
        expected = (self.src.dims[0], outputs, *windowed(self.src.dims[2:], self.weights.dims[2:], self))
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return weighted(self.prop, self.src, self.weights, self.bias, self.dst)
