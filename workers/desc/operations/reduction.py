"""Reduction of a tensor along dimensions."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require

REDUCTION_ALGORITHMS: Final = (
    "max", "min", "sum", "mul", "mean", "norm_lp_max", "norm_lp_sum", "norm_lp_power_p_max", "norm_lp_power_p_sum",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reduction(OpDesc):
    """Reduce src along every dimension whose size in dst is 1.

    The norms sum |x| ** p and take the maximum with eps (``max``) or add eps (``sum``), then the p-th root unless
    ``power_p``; they need p >= 1.
    """

    kind: ClassVar[str] = "reduction"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    p: float = 0.0
    eps: float = 0.0

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, REDUCTION_ALGORITHMS)
        require(self.src.ndims == self.dst.ndims, "dst", f"expect rank {self.src.ndims}, got {self.dst.ndims}")
        pairs = zip(self.src.dims, self.dst.dims, strict=True)
        require(all(d in (1, s) for s, d in pairs), "dst", f"{self.dst.dims} is no reduction of {self.src.dims}")
        require(not self.algorithm.startswith("norm") or self.p >= 1.0, "p", f"must be at least 1, got {self.p}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}
