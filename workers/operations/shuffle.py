"""The public class of Shuffle: see `desc.operations.shuffle`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.shuffle import Shuffle as ShuffleDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class Shuffle(ShuffleDesc, metaclass=Operation):
    """Transpose an axis seen as (size / group_size, group_size): element i * rows + j of dst is j * group_size + i of src."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, axis: int, group_size: int, prop: str = "forward_inference",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, axis, group_size, prop)
        return describe(ShuffleDesc, engine, fields, attr, hint, stream)
