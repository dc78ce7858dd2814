"""The public class of NonZero: see `desc.operations.non_zero`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.non_zero import NonZero as NonZeroDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class NonZero(NonZeroDesc, metaclass=Operation):
    """Return the indices of the elements that are not 0, and how many there are."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, indices: MemoryDesc, count: MemoryDesc, *, attr: PrimitiveAttr | None = None,
        hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(NonZeroDesc, engine, (src, indices, count), attr, hint, stream)
