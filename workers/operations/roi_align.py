"""The public class of RoiAlign: see `desc.operations.roi_align`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.roi_align import RoiAlign as RoiAlignDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class RoiAlign(RoiAlignDesc, metaclass=Operation):
    """Pool samples of an image in each part of boxes."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, boxes: MemoryDesc, images: MemoryDesc, dst: MemoryDesc, algorithm: str = "mean",
        samples: int = 0, scale: float = 1.0, half_pixel: bool = True,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        arguments = src, boxes, images, dst, algorithm, samples, scale, half_pixel
        return describe(RoiAlignDesc, engine, arguments, attr, hint, stream)
