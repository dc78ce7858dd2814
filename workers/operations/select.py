"""The public class of Select: see `desc.operations.select`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.select import Select as SelectDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Select(SelectDesc, metaclass=Operation):
    """Take elements of one tensor or of another, as a condition says."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, condition: MemoryDesc, src0: MemoryDesc, src1: MemoryDesc, dst: MemoryDesc,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(SelectDesc, engine, (condition, src0, src1, dst), attr, hint, stream)
