"""The public class of ArgReduction: see `desc.operations.arg_reduction`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.arg_reduction import ArgReduction as ArgReductionDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class ArgReduction(ArgReductionDesc, metaclass=Operation):
    """Return where the largest or smallest elements along an axis are."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, algorithm: str, axis: int, select_last: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(ArgReductionDesc, engine, (src, dst, algorithm, axis, select_last), attr, hint, stream)
