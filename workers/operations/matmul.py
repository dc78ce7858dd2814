"""The public class of Matmul: see `desc.operations.matmul`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.matmul import Matmul as MatmulDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Matmul(MatmulDesc, metaclass=Operation):
    """Multiply src (..., M, K) by weights (..., K, N), batch dimensions broadcast."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, weights, bias, dst)
        return describe(MatmulDesc, engine, fields, attr, hint, stream)
