"""The public class of Resampling: see `desc.operations.resampling`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.resampling import Resampling as ResamplingDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Resampling(ResamplingDesc, metaclass=Operation):
    """Resample src (N, C, *spatial) to the spatial sizes of dst, by the nearest element, linearly or by cubic convolution."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, algorithm: str, prop: str = "forward_inference",
        coordinates: str = "half_pixel", nearest: str = "round_prefer_ceil", cubic_coeff_a: float = -0.75,
        exclude_outside: bool = False, factors: Items[float] = (), roi: Items[float] = (), extrapolation: float = 0.0,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (
            src, dst, algorithm, prop, coordinates, nearest, cubic_coeff_a, exclude_outside, factors, roi, extrapolation
        )  # fmt: skip
        return describe(ResamplingDesc, engine, fields, attr, hint, stream)
