"""The public class of BatchNormalization: see `desc.operations.batch_normalization`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.batch_normalization import BatchNormalization as BatchNormalizationDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class BatchNormalization(BatchNormalizationDesc, metaclass=Operation):
    """Normalise src (N, C, ...) channel by channel: (x - mean) / sqrt(variance + epsilon) * scale + shift, each (C,) f32."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, epsilon: float, flags: Items[str] = ("use_global_stats",
        "use_scale", "use_shift"), prop: str = "forward_inference", diff_src: MemoryDesc | None = None,
        diff_dst: MemoryDesc | None = None,
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, epsilon, flags, prop, diff_src, diff_dst)
        return describe(BatchNormalizationDesc, engine, fields, attr, hint, stream)
