"""Recurrent network of vanilla cells."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of
from ..typed import Signed, without_sign
from .recurrent import recurrent_memories, require_recurrent


@dataclass(frozen=True, slots=True)
class Rnn(OpDesc):
    """Run cells h = activation(W x + U h + b) over T steps, in L layers and D directions.

    src_layer (T, N, C), weights_layer (L, D, C, 1, H), weights_iter (L, D, H, 1, H), bias (L, D, 1, H), dst_layer
    (T, N, H, or 2 H for bidirectional_concat), src_iter and dst_iter (L, D, N, H); an initial state left out is 0.
    ``alpha`` is the negative slope of relu.
    A ``clip`` that is not 0 limits what functions of gates are computed of, to between its negative and itself.
    """

    kind: ClassVar[str] = "rnn"
    src_layer: MemoryDesc
    src_iter: MemoryDesc | None
    weights_layer: MemoryDesc
    weights_iter: MemoryDesc
    bias: MemoryDesc | None
    dst_layer: MemoryDesc
    dst_iter: MemoryDesc | None
    activation: str = "tanh"
    alpha: Signed = 0.0
    direction: str = "left2right"
    prop: str = "forward_inference"
    clip: float = 0.0

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ("tanh", "relu", "logistic"))
        if self.activation != "relu":
            object.__setattr__(self, "alpha", without_sign(self.alpha))
        require_recurrent(self, 1, 1)

    def memories(self) -> dict[int, MemoryDesc]:
        return recurrent_memories(self)
