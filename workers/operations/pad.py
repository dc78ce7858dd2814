"""The public class of Pad: see `desc.operations.pad`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.pad import Pad as PadDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Pad(PadDesc, metaclass=Operation):
    """Add elements around a tensor, or cut some from it."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, padding_l: Items[int], padding_r: Items[int],
        mode: str = "constant", value: float = 0.0,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(PadDesc, engine, (src, dst, padding_l, padding_r, mode, value), attr, hint, stream)
