"""The public class of Eltwise: see `desc.operations.eltwise`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.eltwise import Eltwise as EltwiseDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Eltwise(EltwiseDesc, metaclass=Operation):
    """Apply a function of one variable to every element."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, algorithm: str, alpha: float = 0.0, beta: float = 0.0,
        prop: str = "forward_inference", diff_src: MemoryDesc | None = None, diff_dst: MemoryDesc | None = None,
        use_dst: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, algorithm, alpha, beta, prop, diff_src, diff_dst, use_dst)
        return describe(EltwiseDesc, engine, fields, attr, hint, stream)
