"""Product by a matrix of weights of a few bits, with a scale for each block of inputs."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class MatmulNbits(OpDesc):
    """Multiply src (M, K) by the transpose of weights that are scale * (number - zero point); dst is (M, N).

    weights are u8 of shape (N, blocks, bytes): each byte has 8 / ``bits`` numbers without a sign, that of the first input
    in the lowest bits. Each block of inputs has a scale, (N, blocks), and so has each a zero point: (N, blocks) of a type
    that is not u8, or packed as the weights are, (N, bytes for all blocks) of u8, or 2 to the power of ``bits`` - 1 if there
    are none. bias is (N,). ``bits`` are 4 or 8. The layout and the formula are those of ONNX Runtime's MatMulNBits.
    """

    kind: ClassVar[str] = "matmul_nbits"
    src: MemoryDesc
    weights: MemoryDesc
    scales: MemoryDesc
    points: MemoryDesc | None
    bias: MemoryDesc | None
    dst: MemoryDesc
    bits: int = 4

    def __post_init__(self) -> None:
        require(self.bits in (4, 8), "bits", f"expect 4 or 8, got {self.bits}")
        require(self.src.ndims == 2, "src", f"expect (M, K), got {self.src.dims}")
        fits = self.weights.ndims == 3 and self.weights.dtype == "u8"
        require(fits, "weights", f"expect u8 of shape (N, blocks, bytes), got {self.weights}")
        columns, blocks, _ = self.weights.dims
        require(self.block > 0, "weights", f"expect blocks with elements, got {self.weights.dims}")
        needed = -(-self.src.dims[1] // self.block)
        require(blocks == needed, "weights", f"expect {needed} blocks of {self.block} inputs, got {blocks}")
        expected: tuple[int, ...] = (columns, blocks)
        require(self.scales.dims == expected, "scales", f"expect {expected}, got {self.scales.dims}")
        if self.points is not None:
            if self.points.dtype == "u8":
                expected = (columns, -(-blocks * self.bits // 8))
            require(self.points.dims == expected, "points", f"expect {expected}, got {self.points.dims}")
        if self.bias is not None:
            require(self.bias.dims == (columns,), "bias", f"expect ({columns},), got {self.bias.dims}")
        expected = (self.src.dims[0], columns)
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    @property
    def block(self) -> int:
        """The inputs that share a scale."""
        return self.weights.dims[2] * 8 // self.bits

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc] = {
            Arg.SRC: self.src, Arg.WEIGHTS: self.weights, Arg.SCALE: self.scales, Arg.DST: self.dst,
        }  # fmt: skip
        extra = {Arg.SHIFT: self.points, Arg.BIAS: self.bias}
        return {**found, **{arg: md for arg, md in extra.items() if md is not None}}
