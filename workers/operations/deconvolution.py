"""The public class of Deconvolution: see `desc.operations.deconvolution`."""

from __future__ import annotations

from ..desc import MemoryDesc, PrimitiveAttr
from ..desc.operations.deconvolution import Deconvolution as DeconvolutionDesc
from ..engines.engine import Engine
from ..execution.primitive_desc_iface import PrimitiveDescIface, describe
from ..streams.stream import Stream
from .operation import Items, Operation


class Deconvolution(DeconvolutionDesc, metaclass=Operation):
    """Transpose a convolution: src (N, IC, *spatial), weights (OC, IC/groups, *kernel), optional bias (OC)."""

    @staticmethod
    def PrimitiveDesc(
        engine: Engine, src: MemoryDesc, weights: MemoryDesc, bias: MemoryDesc | None, dst: MemoryDesc,
        strides: Items[int], dilations: Items[int], padding_l: Items[int], padding_r: Items[int], groups: int = 1,
        prop: str = "forward_inference",
        *, attr: PrimitiveAttr | None = None, hint: PrimitiveDescIface | None = None, stream: Stream | None = None,
    ) -> PrimitiveDescIface:  # fmt: skip
        """Return the primitive descriptor of the best implementation for an engine: see `describe`."""
        fields = (src, weights, bias, dst, strides, dilations, padding_l, padding_r, groups, prop)
        return describe(DeconvolutionDesc, engine, fields, attr, hint, stream)
