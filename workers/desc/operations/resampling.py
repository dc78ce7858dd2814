"""Resampling: spatial dimensions made larger or smaller."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, one_of, require
from ..typed import Signed

RESAMPLING_ALGORITHMS: Final = ("nearest", "linear", "cubic")
#: How an index of dst becomes a place in src: ONNX's coordinate transformation modes.
COORDINATES: Final = (
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric", "tf_crop_and_resize",
)  # fmt: skip
#: Which element is nearest to a place half way between two, or to any place: ONNX's nearest modes.
NEAREST: Final = ("round_prefer_ceil", "round_prefer_floor", "floor", "ceil")
#: The largest magnitude of the slope that Keys' function has one element away: his own are from -0.5 to -1.
_STEEPEST: Final = 16
#: The greatest spatial size of dst: kernels have a table with an item for each index.
_MOST: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Resampling(OpDesc):
    """Resample src (N, C, *spatial) to the spatial sizes of dst, by the nearest element, linearly or by cubic convolution.

    ``coordinates`` says where in src the place x of element i of dst is, with the size of src s, that of dst d, and the factor f,
    one a dimension: d / s unless ``factors`` are given.

    - ``half_pixel``: (i + 0.5) / f - 0.5 (oneDNN's definition); ``pytorch_half_pixel``: the same, 0 if d is 1
    - ``asymmetric``: i / f; ``align_corners``: i * (s - 1) / (d - 1), 0 if d is 1
    - ``half_pixel_symmetric``: half_pixel with the middle of dst, if d is not f * s, at the middle of src
    - ``tf_crop_and_resize``: from start * (s - 1) to end * (s - 1), in the middle of them if d is 1; ``roi`` has all starts, then
      all ends. A place outside of src has the value ``extrapolation``.

    ``nearest`` takes the element that the mode ``nearest`` says. ``linear`` weighs the two neighbours along each dimension,
    ``cubic`` four by Keys' function with the coefficient ``cubic_coeff_a``; the edges are repeated, or with
    ``exclude_outside`` weigh nothing, and the other weights are divided by their sum.
    """

    kind: ClassVar[str] = "resampling"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    prop: str = "forward_inference"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_ceil"
    cubic_coeff_a: Signed = -0.75
    exclude_outside: bool = False
    factors: tuple[float, ...] = ()
    roi: tuple[float, ...] = ()
    extrapolation: Signed = 0.0

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, RESAMPLING_ALGORITHMS)
        one_of("prop", self.prop, FORWARD)
        one_of("coordinates", self.coordinates, COORDINATES)
        one_of("nearest", self.nearest, NEAREST)
        steepest = abs(self.cubic_coeff_a) <= _STEEPEST
        require(
            steepest, "cubic_coeff_a", f"expect a number from -{_STEEPEST} to {_STEEPEST}, got {self.cubic_coeff_a}"
        )
        spatial = self.src.ndims - 2
        require(spatial >= 1, "src", "expect (N, C, *spatial)")
        require(
            self.dst.ndims == self.src.ndims and self.dst.dims[:2] == self.src.dims[:2],
            "dst",
            f"expect {self.src.dims[:2]} and {spatial} spatial dimensions, got {self.dst.dims}",
        )
        largest = max(self.dst.dims[2:])
        require(largest <= _MOST, "dst", f"expect sizes of at most {_MOST}, got {self.dst.dims[2:]}")
        require(0 not in self.src.dims[2:] or 0 in self.dst.dims, "src", "there is nothing to resample")
        positive = len(self.factors) in (0, spatial) and all(0.0 < factor < float("inf") for factor in self.factors)
        require(positive, "factors", f"expect {spatial} positive numbers or none, got {self.factors}")
        count = 2 * spatial if self.coordinates == "tf_crop_and_resize" else 0
        finite = all(abs(bound) < float("inf") for bound in self.roi)
        require(len(self.roi) == count and finite, "roi", f"expect {count} finite numbers, got {self.roi}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
