"""Recurrent network of GRU cells."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc
from .recurrent import complete_activations, recurrent_memories, require_recurrent


@dataclass(frozen=True, slots=True)
class Gru(OpDesc):
    """Run cells with gates u, r, o (oneDNN's order): h = u * h + (1 - u) * o, over T steps.

    o is tanh(W x + U (r * h) + b), or with ``linear_before_reset`` tanh(W x + r * (U h + b'') + b), whose bias has a
    fourth row b''.

    src_layer (T, N, C), weights_layer (L, D, C, 3, H), weights_iter (L, D, H, 3, H), bias (L, D, 3 or 4, H), dst_layer
    (T, N, H, or 2 H for bidirectional_concat), src_iter and dst_iter (L, D, N, H); an initial state left out is 0.
    ``activations`` are the functions of gates u and r, and of o, eltwise algorithms with ``alphas`` and ``betas``.
    A ``clip`` that is not 0 limits what functions of gates are computed of, to between its negative and itself.
    """

    kind: ClassVar[str] = "gru"
    src_layer: MemoryDesc
    src_iter: MemoryDesc | None
    weights_layer: MemoryDesc
    weights_iter: MemoryDesc
    bias: MemoryDesc | None
    dst_layer: MemoryDesc
    dst_iter: MemoryDesc | None
    linear_before_reset: bool = False
    direction: str = "left2right"
    prop: str = "forward_inference"
    clip: float = 0.0
    activations: tuple[str, ...] = ("logistic", "tanh")
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        complete_activations(self, 2)
        require_recurrent(self, 3, 4 if self.linear_before_reset else 3)

    def memories(self) -> dict[int, MemoryDesc]:
        return recurrent_memories(self)
