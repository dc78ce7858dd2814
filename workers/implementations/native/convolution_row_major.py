"""What convolutions of row-major memory by kernels of their own have in common."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Convolution, PrimitiveAttr
from ...engines.target import Target
from .blocks import refuse
from .convolution_blocked import chosen, refuse_operands
from .convolution_chain import refuse_bounded


class RowMajorConvolution:
    """Row-major src, weights and dst of f32; subclasses refuse windows and add the program."""

    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject_window(self, op: Convolution) -> str | None:
        raise NotImplementedError

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := self.reject_window(op):
            return why
        # Left open, layouts are blocks of channels, as the layers around it have them.
        for md in (op.src, op.dst):
            if not md.is_plain:
                return f"layout {md.tag}; only row-major is supported"
        op = self.complete(op, attr, target)
        if not op.weights.is_plain:
            return f"weights layout {op.weights.tag}; only row-major is supported"
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        return replace(op, weights=chosen(op.weights, ""), bias=op.bias and chosen(op.bias, ""))
