"""The public class of Rnn: see `desc.operations.rnn`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.rnn import Rnn as RnnDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Rnn(RnnDesc, metaclass=Operation):
    """Run cells h = activation(W x + U h + b) over T steps, in L layers and D directions."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src_layer: MemoryDesc, src_iter: MemoryDesc | None, weights_layer: MemoryDesc,
        weights_iter: MemoryDesc, bias: MemoryDesc | None, dst_layer: MemoryDesc, dst_iter: MemoryDesc | None,
        activation: str = "tanh", alpha: float = 0.0, direction: str = "left2right", prop: str = "forward_inference",
        clip: float = 0.0,
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
            activation,
            alpha,
            direction,
            prop,
            clip,
        )
        return describe(RnnDesc, engine, fields, attr, hint, stream)
