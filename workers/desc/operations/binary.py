"""Binary: two tensors combined element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..args import Arg
from ..attributes import BINARY_ALGORITHMS
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Binary(OpDesc):
    """Combine two tensors of equal rank element by element; a dimension of 1 is broadcast.

    Comparisons and the logical ``and or xor`` give 1 and 0. ``floor_div`` and ``trunc_div`` are quotients rounded down and to
    zero; ``mod`` has the sign of src1 as Python's, ``fmod`` that of src0 as C's. Integers divided by 0 give 0.
    """

    kind: ClassVar[str] = "binary"
    src0: MemoryDesc
    src1: MemoryDesc
    dst: MemoryDesc
    algorithm: str

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, BINARY_ALGORITHMS)
        require(self.src0.ndims == self.src1.ndims, "src1", f"expect rank {self.src0.ndims}, got {self.src1.ndims}")
        pairs = list(zip(self.src0.dims, self.src1.dims, strict=True))
        require(
            all(a == b or 1 in (a, b) for a, b in pairs),
            "src1",
            f"{self.src1.dims} does not broadcast with {self.src0.dims}",
        )
        expected = tuple(a if b == 1 else b for a, b in pairs)
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src0, Arg.SRC_1: self.src1, Arg.DST: self.dst}
