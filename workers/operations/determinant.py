"""The public class of Determinant: see `desc.operations.determinant`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.determinant import Determinant as DeterminantDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Determinant(DeterminantDesc, metaclass=Operation):
    """Compute the determinants of square matrices."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(DeterminantDesc, engine, (src, dst), attr, hint, stream)
