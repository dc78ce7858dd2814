"""The public class of InnerProduct: see `desc.operations.inner_product`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.inner_product import InnerProduct as InnerProductDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class InnerProduct(InnerProductDesc, metaclass=Operation):
    """Multiply src (N, IC, ...) by the transpose of weights (OC, IC, ...); optional bias (OC,), dst (N, OC)."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc,
        prop: str = "forward_inference",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, weights, bias, dst, prop)
        return describe(InnerProductDesc, engine, fields, attr, hint, stream)
