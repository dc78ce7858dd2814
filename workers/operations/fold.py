"""The public class of Fold: see `desc.operations.fold`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.fold import Fold as FoldDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Fold(FoldDesc, metaclass=Operation):
    """Add up blocks of an image at their places."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, strides: Items[int], dilations: Items[int], padding_l: Items[int],
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(FoldDesc, engine, (src, dst, strides, dilations, padding_l), attr, hint, stream)
