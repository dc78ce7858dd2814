"""The public class of Sum: see `desc.operations.sum`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.sum import Sum as SumDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Sum(SumDesc, metaclass=Operation):
    """Add tensors of one shape, each times its scale (1 where there are no scales)."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, srcs: Items[MemoryDesc], dst: MemoryDesc, scales: Items[float] = (),
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (srcs, dst, scales)
        return describe(SumDesc, engine, fields, attr, hint, stream)
