"""The public class of Pooling: see `desc.operations.pooling`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.pooling import Pooling as PoolingDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Pooling(PoolingDesc, metaclass=Operation):
    """Pool windows of src (N, C, *spatial) into dst (N, C, *spatial)."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, algorithm: str, kernel: Items[int], strides: Items[int],
        dilations: Items[int], padding_l: Items[int], padding_r: Items[int], prop: str = "forward_inference",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, algorithm, kernel, strides, dilations, padding_l, padding_r, prop)
        return describe(PoolingDesc, engine, fields, attr, hint, stream)
