"""TreeLeaves: where rows of numbers end in decision trees."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require

#: Levels of trees, which bound the time of an execution.
MOST_LEVELS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class TreeLeaves(OpDesc):
    """Follow the nodes of trees for each row of src (R, C), from a root each, to the leaves that are dst (R, T), in s32.

    A row of ``nodes`` (N, 4) is the column that a node looks at, the nodes that follow if the number there passes and if it does
    not, and whether NaN passes. A number passes if it is at most the only limit of ``limits`` (N, 1), or not outside of both of
    (N, 2), the lower one first. Both nodes behind a leaf are the leaf. ``roots`` are (T,). After ``levels`` nodes, a row has
    ended wherever it is. Numbers of columns and nodes that there are not are those of the last one.
    """

    kind: ClassVar[str] = "tree_leaves"
    src: MemoryDesc
    nodes: MemoryDesc
    limits: MemoryDesc
    roots: MemoryDesc
    dst: MemoryDesc
    levels: int

    def __post_init__(self) -> None:
        require(self.src.ndims == 2 and self.src.dims[1] > 0, "src", f"expect (R, C), got {self.src.dims}")
        count = self.nodes.dims[0] if self.nodes.ndims else 0
        fits = self.nodes.dims == (count, 4) and count > 0
        require(fits, "nodes", f"expect (N, 4), got {self.nodes.dims}")
        fits = self.limits.dims in ((count, 1), (count, 2))
        require(fits, "limits", f"expect ({count}, 1) or ({count}, 2), got {self.limits.dims}")
        require(self.roots.ndims == 1, "roots", f"expect (T,), got {self.roots.dims}")
        for name in ("nodes", "roots"):
            dtype = getattr(self, name).dtype
            require(dtype == "s32", name, f"expect s32, got {dtype}")
        expected = (self.src.dims[0], *self.roots.dims)
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")
        require(1 <= self.levels <= MOST_LEVELS, "levels", f"expect 1 to {MOST_LEVELS}, got {self.levels}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {
            Arg.SRC: self.src, Arg.SRC_1: self.nodes, Arg.SRC_2: self.limits, Arg.WEIGHTS: self.roots, Arg.DST: self.dst
        }  # fmt: skip
