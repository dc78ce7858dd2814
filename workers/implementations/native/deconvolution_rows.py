"""The rows of src that a depthwise deconvolution of planes copies. Pure."""

from __future__ import annotations

from typing import Final

from ...desc import Deconvolution
from ...kernels.native.limits import reach

#: Spatial dimensions that the kernel has.
SPATIAL: Final = 2


class Rows:
    """Sizes in rows and columns, and the copy that the kernel makes: bytes of a row, and rows ``more`` than positions."""

    def __init__(self, op: Deconvolution) -> None:
        one = (1,) * (SPATIAL - op.src.ndims + 2)
        self.src, self.dst = (*one, *op.src.dims[2:]), (*one, *op.dst.dims[2:])
        self.kernel, self.stride = (*one, *op.weights.dims[2:]), (*one, *op.strides)
        self.padding = (*(0,) * len(one), *op.padding_l)
        self.lead = tuple(pad % stride for pad, stride in zip(self.padding, self.stride, strict=True))
        self.more, beside = (
            last - first
            for first, last in (reach(*sizes) for sizes in zip(self.kernel, self.stride, self.lead, strict=True))
        )
        vectors = -(-self.dst[1] // (16 * self.stride[1]))
        self.nbytes = 64 * (vectors + -(-beside // 16))
