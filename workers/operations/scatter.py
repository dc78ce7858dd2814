"""The public class of Scatter: see `desc.operations.scatter`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.scatter import Scatter as ScatterDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Scatter(ScatterDesc, metaclass=Operation):
    """Replace parts or elements of a tensor at indices, or combine updates with them."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, indices: MemoryDesc, updates: MemoryDesc, dst: MemoryDesc,
        algorithm: str = "elements", axis: int = 0, reduction: str = "none",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(
            ScatterDesc, engine, (src, indices, updates, dst, algorithm, axis, reduction), attr, hint, stream
        )
