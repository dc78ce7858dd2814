"""Inner product in every propagation kind: a convolution whose kernel is as large as src."""

from __future__ import annotations

from ...desc import Arg, InnerProduct, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .products import Window, convolution, convolution_weights, seen


class ReferenceInnerProduct(ReferenceImplementation[InnerProduct]):
    """Any data types, layouts, attributes and ranks."""

    name = "ref:inner_product"

    def program(self, op: InnerProduct, attr: PrimitiveAttr, target: Target) -> Program:
        window = [Window(size) for size in op.weights.dims[2:]]
        described = {Arg(arg): seen(arg, md, op.src.ndims) for arg, md in op.memories().items()}
        if op.prop == "backward_data":
            return convolution(
                attr, described[Arg.DIFF_DST], described[Arg.WEIGHTS], None, described[Arg.DIFF_SRC], window,
                transposed=True, swapped=True,
            )  # fmt: skip
        if op.prop == "backward_weights":
            src, weights, dst = (described[arg] for arg in (Arg.SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_DST))
            return convolution_weights(attr, src, weights, op.bias, dst, window)
        src, weights, dst = (described[arg] for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
        return convolution(attr, src, weights, op.bias, dst, window)
