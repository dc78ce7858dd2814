"""Pad: elements added around a tensor, or cut from it."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass
from poolrt.cachestore.deferred_namedtuple import NamedTuple

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require
from ..typed import Signed

PAD_MODES: Final = ("constant", "edge", "reflect", "wrap")


class Margin(NamedTuple):
    """One dimension of a pad: elements added ``before``, elements ``cut`` at the start of src, and those that are ``kept``."""

    before: int
    cut: int
    kept: int


@dataclass(frozen=True, slots=True)
class Pad(OpDesc):
    """Add ``padding_l`` elements before and ``padding_r`` behind src along each dimension; negative numbers cut elements.

    Cut first, what is added has the ``value`` (constant), repeats the elements at the edges (edge), mirrors those behind them
    (reflect), or continues with those of the other end (wrap), as NumPy's ``pad``.
    """

    kind: ClassVar[str] = "pad"
    src: MemoryDesc
    dst: MemoryDesc
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    mode: str = "constant"
    value: Signed = 0.0

    def __post_init__(self) -> None:
        expected = padded_dims(self.src.dims, self.padding_l, self.padding_r, self.mode)
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}

    def margins(self) -> list[Margin]:
        """Return the margin of each dimension."""
        return [
            Margin(max(left, 0), max(-left, 0), size + min(left, 0) + min(right, 0))
            for size, left, right in zip(self.src.dims, self.padding_l, self.padding_r, strict=True)
        ]


def padded_dims(dims: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...], mode: str) -> tuple[int, ...]:
    """Return the shape of a pad's result. Raises ValueError naming the wrong argument."""
    one_of("mode", mode, PAD_MODES)
    for name, padding in (("padding_l", left), ("padding_r", right)):
        require(len(padding) == len(dims), name, f"expect {len(dims)} numbers for {dims}, got {padding}")
    for axis, (size, before, behind) in enumerate(zip(dims, left, right, strict=True)):
        kept = size + min(before, 0) + min(behind, 0)
        require(kept >= 0, "padding_l", f"{before} and {behind} cut more than dimension {axis} of {dims}")
        adds = before > 0 or behind > 0
        require(
            mode == "constant" or kept > 0 or not adds, "mode", f"{mode} has no elements along axis {axis} of {dims}"
        )
    return tuple(size + before + behind for size, before, behind in zip(dims, left, right, strict=True))
