"""The public class of Attention: see `desc.operations.attention`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.attention import Attention as AttentionDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Attention(AttentionDesc, metaclass=Operation):
    """Return the mean of values for each query, weighted by the softmax of its products with the keys."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, query: MemoryDesc, key: MemoryDesc, value: MemoryDesc, mask: MemoryDesc | None, dst: MemoryDesc,
        scale: float | None = None, causal: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (query, key, value, mask, dst, scale, causal)
        return describe(AttentionDesc, engine, fields, attr, hint, stream)
