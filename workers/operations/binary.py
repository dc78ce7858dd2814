"""The public class of Binary: see `desc.operations.binary`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.binary import Binary as BinaryDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Binary(BinaryDesc, metaclass=Operation):
    """Combine two tensors of equal rank element by element; a dimension of 1 is broadcast."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src0: MemoryDesc, src1: MemoryDesc, dst: MemoryDesc, algorithm: str,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src0, src1, dst, algorithm)
        return describe(BinaryDesc, engine, fields, attr, hint, stream)
