"""The public class of MatmulNbits: see `desc.operations.matmul_nbits`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.matmul_nbits import MatmulNbits as MatmulNbitsDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class MatmulNbits(MatmulNbitsDesc, metaclass=Operation):
    """Multiply by a matrix of weights of 4 or 8 bits, with a scale for each block of inputs."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, weights: MemoryDesc, scales: MemoryDesc, points: MemoryDesc | None,
        bias: MemoryDesc | None, dst: MemoryDesc, bits: int = 4,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, weights, scales, points, bias, dst, bits)
        return describe(MatmulNbitsDesc, engine, fields, attr, hint, stream)
