"""The public class of Rotary: see `desc.operations.rotary`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.rotary import Rotary as RotaryDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Rotary(RotaryDesc, metaclass=Operation):
    """Rotate pairs of elements of rows by angles."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, cosine: MemoryDesc, sine: MemoryDesc, dst: MemoryDesc, interleaved: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(RotaryDesc, engine, (src, cosine, sine, dst, interleaved), attr, hint, stream)
