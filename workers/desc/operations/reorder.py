"""Reorder: a tensor copied into another layout, data type or engine."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..data_type import LIMITS
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require


@dataclass(frozen=True, slots=True)
class Reorder(OpDesc):
    """Copy a tensor into another layout or data type, or to another engine.

    A transposition is a reorder whose source tag names the permuted order. Values that dst's type cannot hold are
    rounded to even and saturated; integers that become others lose the high bits that do not fit if the reorder ``wraps``.
    ``src_engine`` and ``dst_engine`` are engine kinds if the tensors are on different
    engines, at least one of them no CPU; both are empty within one engine.
    """

    kind: ClassVar[str] = "reorder"
    src: MemoryDesc
    dst: MemoryDesc
    src_engine: str = ""
    dst_engine: str = ""
    wraps: bool = False

    def __post_init__(self) -> None:
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        require(not (self.src.is_any or self.dst.is_any), "dst", "a reorder's layouts must both be given")
        whole = all(md.dtype in LIMITS for md in (self.src, self.dst))
        require(whole or not self.wraps, "wraps", f"expect integers, got {self.src.dtype} and {self.dst.dtype}")
        engines = (self.src_engine, self.dst_engine)
        for name, engine in zip(("src_engine", "dst_engine"), engines, strict=True):
            one_of(name, engine, ("", "cpu", "opencl"))
        require(
            engines == ("", "") or ("opencl" in engines and "" not in engines),
            "dst_engine",
            f"expect none for a reorder within one engine, else two, at least one no cpu, got {engines}",
        )

    @property
    def is_cross_engine(self) -> bool:
        """Whether the tensors are on different engines."""
        return bool(self.dst_engine)

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
