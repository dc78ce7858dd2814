"""The public class of DynamicLstm: see `desc.operations.dynamic_lstm`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.dynamic_lstm import DynamicLstm as DynamicLstmDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class DynamicLstm(DynamicLstmDesc, metaclass=Operation):
    """Run LSTM cells over a sequence, whose states are quantised by their range before they are multiplied."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, src_iter: MemoryDesc | None, src_iter_c: MemoryDesc | None, weights: MemoryDesc,
        scales: MemoryDesc, points: MemoryDesc | None, dst: MemoryDesc, dst_iter_c: MemoryDesc, backwards: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        arguments = src, src_iter, src_iter_c, weights, scales, points, dst, dst_iter_c, backwards
        return describe(DynamicLstmDesc, engine, arguments, attr, hint, stream)
