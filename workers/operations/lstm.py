"""The public class of Lstm: see `desc.operations.lstm`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.lstm import Lstm as LstmDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Lstm(LstmDesc, metaclass=Operation):
    """Run cells with gates i, f, c, o (oneDNN's order): c = f * c + i * c~, h = o * tanh(c), over T steps."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src_layer: MemoryDesc, src_iter: MemoryDesc | None, src_iter_c: MemoryDesc | None,
        weights_layer: MemoryDesc, weights_iter: MemoryDesc, bias: MemoryDesc | None, dst_layer: MemoryDesc,
        dst_iter: MemoryDesc | None, dst_iter_c: MemoryDesc | None, direction: str = "left2right",
        prop: str = "forward_inference",
        clip: float = 0.0, weights_peephole: MemoryDesc | None = None,
        activations: Items[str] = ("logistic", "tanh", "tanh"), alphas: Items[float] = (),
        betas: Items[float] = (),
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (
            src_layer,
            src_iter,
            src_iter_c,
            weights_layer,
            weights_iter,
            bias,
            dst_layer,
            dst_iter,
            dst_iter_c,
            direction,
            prop,
            clip,
            weights_peephole,
            activations,
            alphas,
            betas,
        )
        return describe(LstmDesc, engine, fields, attr, hint, stream)
