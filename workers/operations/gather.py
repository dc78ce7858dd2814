"""The public class of Gather: see `desc.operations.gather`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.gather import Gather as GatherDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Gather(GatherDesc, metaclass=Operation):
    """Copy the parts or elements of a tensor that indices choose."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, indices: MemoryDesc, dst: MemoryDesc, algorithm: str = "rows", axis: int = 0,
        batch_dims: int = 0,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(GatherDesc, engine, (src, indices, dst, algorithm, axis, batch_dims), attr, hint, stream)
