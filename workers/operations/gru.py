"""The public class of Gru: see `desc.operations.gru`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.gru import Gru as GruDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Gru(GruDesc, metaclass=Operation):
    """Run cells with gates u, r, o (oneDNN's order): h = u * h + (1 - u) * o, over T steps."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src_layer: MemoryDesc, src_iter: MemoryDesc | None, weights_layer: MemoryDesc,
        weights_iter: MemoryDesc, bias: MemoryDesc | None, dst_layer: MemoryDesc, dst_iter: MemoryDesc | None,
        linear_before_reset: bool = False, direction: str = "left2right", prop: str = "forward_inference",
        clip: float = 0.0, activations: Items[str] = ("logistic", "tanh"), alphas: Items[float] = (),
        betas: Items[float] = (),
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (
            src_layer,
            src_iter,
            weights_layer,
            weights_iter,
            bias,
            dst_layer,
            dst_iter,
            linear_before_reset,
            direction,
            prop,
            clip,
            activations,
            alphas,
            betas,
        )
        return describe(GruDesc, engine, fields, attr, hint, stream)
