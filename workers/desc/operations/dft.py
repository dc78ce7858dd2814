"""Discrete Fourier transforms along an axis, of numbers whose parts are along the last dimension."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Dft(OpDesc):
    """Transform src along an axis to ``length`` frequencies, or back if ``inverse``, which divides by the length.

    The last dimension has the real part, or the real and the imaginary one. Elements of src beyond the length are left out,
    and missing ones are 0. A ``one_sided`` transform has the frequencies 0 to length // 2, as its result; as the source of an
    inverse one, whose result is real: imaginary parts that a real signal cannot have do not count.
    """

    kind: ClassVar[str] = "dft"
    src: MemoryDesc
    dst: MemoryDesc
    axis: int
    length: int
    inverse: bool = False
    one_sided: bool = False

    def __post_init__(self) -> None:
        last = self.src.ndims - 1
        require(last >= 1, "src", f"expect two dimensions or more, got {self.src.dims}")
        require(0 <= self.axis < last, "axis", f"expect 0..{last - 1}, got {self.axis}")
        require(
            self.src.dims[-1] in (1, 2), "src", f"expect one or two parts in the last dimension, got {self.src.dims}"
        )
        require(self.length >= 1, "length", f"expect 1 or more, got {self.length}")
        wanted = self.result_dims(self.src.dims, self.axis, self.length, self.inverse, self.one_sided)
        require(self.dst.dims == wanted, "dst", f"expect {wanted}, got {self.dst.dims}")

    @staticmethod
    def result_dims(dims: tuple[int, ...], axis: int, length: int, inverse: bool, one_sided: bool) -> tuple[int, ...]:
        """Return the shape of dst for that of src."""
        made = length // 2 + 1 if one_sided and not inverse else length
        return (*dims[:axis], made, *dims[axis + 1 : -1], 1 if one_sided and inverse else 2)

    @property
    def mirrors(self) -> bool:
        """Whether src is half of a spectrum whose other half is the conjugate."""
        return self.inverse and self.one_sided

    @property
    def read(self) -> int:
        """The elements of src along the axis that the results depend on."""
        return min(self.src.dims[self.axis], self.length // 2 + 1 if self.mirrors else self.length)

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
