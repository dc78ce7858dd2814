"""Binary: two tensors combined element by element."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..attributes import BINARY_ALGORITHMS
from ..data_type import LIMITS
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require

#: Functions of the bits of integers, which post-ops do not have.
BITWISE_ALGORITHMS: Final = (
    "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", "wrap_add", "wrap_sub", "wrap_mul", "wrap_pow",
    "wrap_abs_diff",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Binary(OpDesc):
    """Combine two tensors of equal rank element by element; a dimension of 1 is broadcast.

    ``max`` and ``min`` are NaN if either element is. Comparisons and the logical ``and or xor`` give 1 and 0. ``floor_div``
    and ``trunc_div`` are quotients rounded down and to zero; ``mod`` has the sign of src1 as Python's, ``fmod``
    that of src0 as C's. ``div`` of integers is rounded to nearest, even on ties, and saturates, as the least number by -1
    does. ``pow`` is src0 to the power of src1, with the special values of C's.

    Integers divided by 0 give 0, quotients and remainders alike, as in NumPy (with a warning) and in ONNX's reference
    implementation; ONNX leaves it undefined. If src0 or src1 is not of integers, the quotient is that of floats: infinite or NaN.

    The sums, differences and products of tensors of one type of `WRAPPING` wrap and are exact; those of other integers
    saturate. ``bit_and bit_or bit_xor`` combine bits; ``shift_left`` and ``shift_right`` shift those of src0 by src1 places, a
    negative number as if it were a large one; ``wrap_add wrap_sub wrap_mul wrap_pow`` are the low bits of a sum, a difference, a
    product and a power, which is 0 if its exponent is negative unless its base is 1 or -1, and ``wrap_abs_diff`` those of the
    absolute difference. These take integers of one type.
    """

    kind: ClassVar[str] = "binary"
    src0: MemoryDesc
    src1: MemoryDesc
    dst: MemoryDesc
    algorithm: str

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, (*BINARY_ALGORITHMS, *BITWISE_ALGORITHMS))
        if self.algorithm in BITWISE_ALGORITHMS:
            types = tuple(md.dtype for md in (self.src0, self.src1, self.dst))
            require(
                len({*types}) == 1 and types[0] in LIMITS,
                "src0",
                f"expect integers of one type, got {', '.join(types)}",
            )
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
