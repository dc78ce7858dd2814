"""Eltwise: a function of one variable."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..attributes import ELTWISE_ALGORITHMS, drop_signs, eltwise_algorithm
from ..memory_desc import MemoryDesc
from ..op_desc import FORWARD, OpDesc, complete_gradients, one_of, require
from ..typed import Signed

#: Algorithms whose gradient can be computed from dst.
FROM_DST: Final = ("relu", "tanh", "elu", "sqrt", "logistic", "exp", "clip_v2")


@dataclass(frozen=True, slots=True)
class Eltwise(OpDesc):
    """Apply a function of one variable to every element; alpha and beta as in oneDNN (relu's alpha is its negative slope).

    The gradient is computed from src, or with ``use_dst`` from dst, where an algorithm allows it.
    """

    kind: ClassVar[str] = "eltwise"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    alpha: Signed = 0.0
    beta: Signed = 0.0
    prop: str = "forward_inference"
    diff_src: MemoryDesc | None = None
    diff_dst: MemoryDesc | None = None
    use_dst: bool = False

    def __post_init__(self) -> None:
        one_of("prop", self.prop, (*FORWARD, "backward_data"))
        object.__setattr__(self, "algorithm", eltwise_algorithm(self.algorithm))
        one_of("algorithm", self.algorithm, ELTWISE_ALGORITHMS)
        drop_signs(self)
        require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        if self.use_dst:
            one_of("algorithm", self.algorithm, FROM_DST)
            require(not (self.algorithm in ("relu", "elu") and self.alpha < 0.0), "alpha", "with use_dst, expect >= 0")
        complete_gradients(self)

    def memories(self) -> dict[int, MemoryDesc]:
        if self.diff_src is None or self.diff_dst is None:
            return {Arg.SRC: self.src, Arg.DST: self.dst}
        data: dict[int, MemoryDesc] = {Arg.DST: self.dst} if self.use_dst else {Arg.SRC: self.src}
        return {**data, Arg.DIFF_SRC: self.diff_src, Arg.DIFF_DST: self.diff_dst}
