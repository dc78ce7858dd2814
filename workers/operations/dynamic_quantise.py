"""The public class of DynamicQuantise: see `desc.operations.dynamic_quantise`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.dynamic_quantise import DynamicQuantise as DynamicQuantiseDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class DynamicQuantise(DynamicQuantiseDesc, metaclass=Operation):
    """Quantise a tensor to u8 by its least and greatest number."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, scale: MemoryDesc, zero_point: MemoryDesc,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(DynamicQuantiseDesc, engine, (src, dst, scale, zero_point), attr, hint, stream)
