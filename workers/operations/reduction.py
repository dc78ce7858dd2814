"""The public class of Reduction: see `desc.operations.reduction`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.reduction import Reduction as ReductionDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Reduction(ReductionDesc, metaclass=Operation):
    """Reduce src along every dimension whose size in dst is 1."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, algorithm: str, p: float = 0.0, eps: float = 0.0,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, algorithm, p, eps)
        return describe(ReductionDesc, engine, fields, attr, hint, stream)
