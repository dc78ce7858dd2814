"""Grid sample: elements of an image at places that a grid names."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require

SAMPLE_ALGORITHMS: Final = ("nearest", "linear", "cubic")
SAMPLE_PADDINGS: Final = ("zeros", "border", "reflection")
GRID_TYPES: Final = ("f64", "f32", "f16", "bf16")


@dataclass(frozen=True, slots=True)
class GridSample(OpDesc):
    """Sample src (N, C, *spatial) at the places of a grid (N, *out, D) of its D spatial dimensions; dst is (N, C, *out).

    The first number of a place is along the last dimension. -1 and 1 are the centres of the first and last element with
    ``align_corners``, else their outer edges. ``nearest`` takes the nearest element, of two the even one, ``linear`` weighs two
    elements along each dimension, and ``cubic`` four, by Keys' function of -0.75. Elements outside of src are zeros, or those
    to which ``padding`` moves them: to the edge (border), or mirrored there as often as it takes (reflection). It moves
    places before they have neighbours, but those of ``cubic``, and rounds those of ``nearest`` first. Places are computed in
    float64.
    """

    kind: ClassVar[str] = "grid_sample"
    src: MemoryDesc
    grid: MemoryDesc
    dst: MemoryDesc
    algorithm: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False

    def __post_init__(self) -> None:
        expected = sampled_dims(self.src, self.grid, self.algorithm, self.padding)
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.SRC_1: self.grid, Arg.DST: self.dst}


def sampled_dims(src: MemoryDesc, grid: MemoryDesc, algorithm: str, padding: str) -> tuple[int, ...]:
    """Return the shape of a grid sample's result. Raises ValueError naming the wrong argument."""
    one_of("algorithm", algorithm, SAMPLE_ALGORITHMS)
    one_of("padding", padding, SAMPLE_PADDINGS)
    require(src.ndims >= 3, "src", f"expect (N, C, *spatial), got {src.dims}")
    count = src.ndims - 2
    fits = grid.ndims == src.ndims and grid.dims[0] == src.dims[0] and grid.dims[-1] == count
    require(fits, "grid", f"expect ({src.dims[0]}, {count} sizes, {count}), got {grid.dims}")
    require(
        grid.dtype in GRID_TYPES, "grid", f"expect {', '.join(GRID_TYPES[:-1])} or {GRID_TYPES[-1]}, got {grid.dtype}"
    )
    dims = (*src.dims[:2], *grid.dims[1:-1])
    require(0 in dims or 0 not in src.dims, "src", f"{src.dims} has no elements to sample")
    return dims
