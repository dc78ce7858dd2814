"""The public class of TopK: see `desc.operations.top_k`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.top_k import TopK as TopKDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class TopK(TopKDesc, metaclass=Operation):
    """Return the largest or smallest elements along an axis, and where they are."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, indices: MemoryDesc, k: int, axis: int, largest: bool = True,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(TopKDesc, engine, (src, dst, indices, k, axis, largest), attr, hint, stream)
