"""The public class of Lrn: see `desc.operations.lrn`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.lrn import Lrn as LrnDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Lrn(LrnDesc, metaclass=Operation):
    """Normalise: x / (k + alpha / count * sum of squares over a window) ** beta."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, local_size: int, alpha: float, beta: float, k: float,
        algorithm: str = "across_channels", prop: str = "forward_inference",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, local_size, alpha, beta, k, algorithm, prop)
        return describe(LrnDesc, engine, fields, attr, hint, stream)
