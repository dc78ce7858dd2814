"""The public class of Prelu: see `desc.operations.prelu`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.prelu import Prelu as PreluDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Prelu(PreluDesc, metaclass=Operation):
    """Multiply negative elements of src by weights of the same rank, broadcast along dimensions of 1."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc, prop: str = "forward_inference",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, weights, dst, prop)
        return describe(PreluDesc, engine, fields, attr, hint, stream)
