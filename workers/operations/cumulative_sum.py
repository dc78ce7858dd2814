"""The public class of CumulativeSum: see `desc.operations.cumulative_sum`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.cumulative_sum import CumulativeSum as CumulativeSumDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class CumulativeSum(CumulativeSumDesc, metaclass=Operation):
    """Sum the elements along an axis up to each one."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, axis: int, exclusive: bool = False, reverse: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(CumulativeSumDesc, engine, (src, dst, axis, exclusive, reverse), attr, hint, stream)
