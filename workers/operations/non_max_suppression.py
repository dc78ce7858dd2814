"""The public class of NonMaxSuppression: see `desc.operations.non_max_suppression`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.non_max_suppression import NonMaxSuppression as NonMaxSuppressionDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class NonMaxSuppression(NonMaxSuppressionDesc, metaclass=Operation):
    """Choose the best boxes of each class, without those that overlap a better one."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, boxes: MemoryDesc, scores: MemoryDesc, limits: MemoryDesc, indices: MemoryDesc, count: MemoryDesc,
        most: int, center_point: bool = False, *, attr: PrimitiveAttr | None = None,
        hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        arguments = boxes, scores, limits, indices, count, most, center_point
        return describe(NonMaxSuppressionDesc, engine, arguments, attr, hint, stream)
