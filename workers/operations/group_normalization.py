"""The public class of GroupNormalization: see `desc.operations.group_normalization`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.group_normalization import GroupNormalization as GroupNormalizationDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class GroupNormalization(GroupNormalizationDesc, metaclass=Operation):
    """Normalise src (N, C, ...) over C/groups channels of an image at a time; scale and shift are (C,) f32."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, dst: MemoryDesc, groups: int, epsilon: float, flags: Items[str] = ("use_scale",
        "use_shift"), prop: str = "forward_inference",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, dst, groups, epsilon, flags, prop)
        return describe(GroupNormalizationDesc, engine, fields, attr, hint, stream)
