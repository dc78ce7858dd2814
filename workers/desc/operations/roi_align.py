"""RoiAlign: samples of an image, pooled in each part of boxes."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require

ROI_ALGORITHMS: Final = ("mean", "max")
BOX_TYPES: Final = ("f64", "f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class RoiAlign(OpDesc):
    """Cut each of the boxes (K, 4) of src (N, C, H, W) into equal parts, and pool samples of each: dst is (K, C, parts, parts).

    A box is x1, y1, x2 and y2, times ``scale``, less 0.5 with ``half_pixel``; without, a box is at least one element long.
    ``images`` (K,) are the numbers of their images. Along a dimension, a part has ``samples`` at equal distances, or of 0 as many
    as it has elements, rounded up. A sample is between two elements along each dimension, which it weighs; one that is more
    than one element outside is 0, as is a box of no image. ``mean`` is of samples, ``max`` of weighed elements. Lengths of boxes
    are computed in float32, those of f64 in float64.
    """

    kind: ClassVar[str] = "roi_align"
    src: MemoryDesc
    boxes: MemoryDesc
    images: MemoryDesc
    dst: MemoryDesc
    algorithm: str = "mean"
    samples: int = 0
    scale: float = 1.0
    half_pixel: bool = True

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ROI_ALGORITHMS)
        require(self.src.ndims == 4, "src", f"expect (N, C, H, W), got {self.src.dims}")
        count = self.boxes.dims[0] if self.boxes.ndims else 0
        require(self.boxes.dims == (count, 4), "boxes", f"expect (K, 4), got {self.boxes.dims}")
        require(self.boxes.dtype in BOX_TYPES, "boxes", f"expect a floating-point type, got {self.boxes.dtype}")
        require(self.images.dims == (count,), "images", f"expect ({count},), got {self.images.dims}")
        require(self.samples >= 0, "samples", f"expect 0 or more, got {self.samples}")
        fits = self.dst.ndims == 4 and self.dst.dims[:2] == (count, self.src.dims[1]) and min(self.dst.dims[2:]) > 0
        require(fits, "dst", f"expect ({count}, {self.src.dims[1]}, parts, parts), got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.SRC_1: self.boxes, Arg.SRC_2: self.images, Arg.DST: self.dst}
