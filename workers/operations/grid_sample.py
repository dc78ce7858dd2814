"""The public class of GridSample: see `desc.operations.grid_sample`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.grid_sample import GridSample as GridSampleDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Operation


class GridSample(GridSampleDesc, metaclass=Operation):
    """Sample an image at the places that a grid names."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, grid: MemoryDesc, dst: MemoryDesc, algorithm: str = "linear",
        padding: str = "zeros", align_corners: bool = False,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        return describe(GridSampleDesc, engine, (src, grid, dst, algorithm, padding, align_corners), attr, hint, stream)
