"""Pooling: the maximum or the mean of a window moved over spatial dimensions."""

from __future__ import annotations

import math
from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require
from .window import require_window, windowed

POOLING_ALGORITHMS: Final = ("max", "avg_include_padding", "avg_exclude_padding")
#: Elements of a window that is longer than src. The workspace numbers them in int32, and padding costs as much as elements.
_MOST_PADDED: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Pooling(OpDesc):
    """Pool windows of src (N, C, *spatial) into dst (N, C, *spatial).

    The workspace of a maximum holds, for each element of dst, the number of the winner in its window, row-major.
    Backward, src and dst describe the gradients that take their places.
    """

    kind: ClassVar[str] = "pooling"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    prop: str = "forward_inference"

    def __post_init__(self) -> None:
        one_of("prop", self.prop, (*FORWARD, "backward_data"))
        one_of("algorithm", self.algorithm, POOLING_ALGORITHMS)
        require(self.src.ndims >= 3, "src", "expect (N, C, *spatial)")
        require(len(self.kernel) == self.src.ndims - 2, "kernel", f"expect {self.src.ndims - 2} sizes")
        require_window(self, self.src.ndims - 2)
        count, most = math.prod(self.kernel), max(_MOST_PADDED, math.prod(self.src.dims[2:]))
        require(count <= most, "kernel", f"expect a window of at most {most} elements, got {self.kernel}: {count}")
        expected = (*self.src.dims[:2], *windowed(self.src.dims[2:], self.kernel, self))
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc]
        if self.is_forward:
            found = {Arg.SRC: self.src, Arg.DST: self.dst}
        else:
            found = {Arg.DIFF_SRC: self.src, Arg.DIFF_DST: self.dst}
        if self.algorithm == "max" and self.prop != "forward_inference":
            found[Arg.WORKSPACE] = MemoryDesc(self.dst.dims, "s32", self.dst.tag, self.dst.strides)
        return found
