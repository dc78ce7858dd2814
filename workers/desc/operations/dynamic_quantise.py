"""Quantisation by the range of a tensor: bytes, and the scale and zero point that its numbers give."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class DynamicQuantise(OpDesc):
    """Quantise src to u8 so that its least and greatest number, and 0, are in range, as ONNX's DynamicQuantizeLinear does.

    The scale is a 255th of the range, 1 if that is 0. The zero point is minus the least number by the scale, rounded to even,
    255 at most. An element is its quotient by the scale, rounded to even, plus the zero point, saturated. All steps are in
    float32. NaN becomes the least number; a tensor with NaN has the range of zeros.
    """

    kind: ClassVar[str] = "dynamic_quantise"
    src: MemoryDesc
    dst: MemoryDesc
    scale: MemoryDesc
    zero_point: MemoryDesc

    def __post_init__(self) -> None:
        require(self.dst.dims == self.src.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(self.dst.dtype == "u8", "dst", f"expect u8, got {self.dst.dtype}")
        for name in ("scale", "zero_point"):
            md = getattr(self, name)
            require(md.dims == (), name, f"expect (), got {md.dims}")
        require(self.scale.dtype == "f32", "scale", f"expect f32, got {self.scale.dtype}")
        known = ("u8", "s32")
        require(self.zero_point.dtype in known, "zero_point", f"expect u8 or s32, got {self.zero_point.dtype}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst, Arg.DST_1: self.scale, Arg.DST_2: self.zero_point}
