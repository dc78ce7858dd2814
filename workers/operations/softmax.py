"""The public class of Softmax: see `desc.operations.softmax`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.softmax import Softmax as SoftmaxDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Softmax(SoftmaxDesc, metaclass=Operation):
    """Normalise exponentials along an axis; ``log`` gives their logarithm."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, axis: int, algorithm: str = "accurate",
        prop: str = "forward_inference", diff_src: MemoryDesc | None = None, diff_dst: MemoryDesc | None = None,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, axis, algorithm, prop, diff_src, diff_dst)
        return describe(SoftmaxDesc, engine, fields, attr, hint, stream)
