"""The public class of Concat: see `desc.operations.concat`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.concat import Concat as ConcatDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Concat(ConcatDesc, metaclass=Operation):
    """Join tensors along an axis."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, srcs: Items[MemoryDesc], dst: MemoryDesc, axis: int,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (srcs, dst, axis)
        return describe(ConcatDesc, engine, fields, attr, hint, stream)
