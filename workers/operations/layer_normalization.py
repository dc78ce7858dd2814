"""The public class of LayerNormalization: see `desc.operations.layer_normalization`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.layer_normalization import LayerNormalization as LayerNormalizationDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class LayerNormalization(LayerNormalizationDesc, metaclass=Operation):
    """Normalise src (..., C) row by row: (x - mean) / sqrt(variance + epsilon) * scale + shift."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, epsilon: float, flags: Items[str] = ("use_scale",
        "use_shift"), prop: str = "forward_inference", diff_src: MemoryDesc | None = None,
        diff_dst: MemoryDesc | None = None,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, epsilon, flags, prop, diff_src, diff_dst)
        return describe(LayerNormalizationDesc, engine, fields, attr, hint, stream)
