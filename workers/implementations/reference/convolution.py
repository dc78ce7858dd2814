"""Convolution in every propagation kind, and deconvolution."""

from __future__ import annotations

from ...desc import Arg, Convolution, Deconvolution, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .products import Tensor, Window, convolution, convolution_weights


class ReferenceConvolution(ReferenceImplementation[Convolution]):
    """Any data types, layouts, attributes and number of spatial dimensions."""

    name = "ref:convolution"

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        window = _window(op)
        described = {Arg(arg): Tensor(arg, md, md.dims) for arg, md in op.memories().items()}
        if op.prop == "backward_data":
            return convolution(
                attr, described[Arg.DIFF_DST], described[Arg.WEIGHTS], None, described[Arg.DIFF_SRC], window, op.groups,
                transposed=True, swapped=True,
            )  # fmt: skip
        if op.prop == "backward_weights":
            src, weights, dst = (described[arg] for arg in (Arg.SRC, Arg.DIFF_WEIGHTS, Arg.DIFF_DST))
            return convolution_weights(attr, src, weights, op.bias, dst, window, op.groups)
        src, weights, dst = (described[arg] for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
        return convolution(attr, src, weights, op.bias, dst, window, op.groups)


class ReferenceDeconvolution(ReferenceImplementation[Deconvolution]):
    """Any data types, layouts, attributes and number of spatial dimensions."""

    name = "ref:deconvolution"

    def program(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Program:
        tensors = [(Arg.SRC, op.src), (Arg.WEIGHTS, op.weights), (Arg.DST, op.dst)]
        src, weights, dst = (Tensor(arg, md, md.dims) for arg, md in tensors)
        return convolution(attr, src, weights, op.bias, dst, _window(op), op.groups, transposed=True)


def _window(op: Convolution | Deconvolution) -> list[Window]:
    sizes = zip(op.weights.dims[2:], op.strides, op.dilations, op.padding_l, strict=True)
    return [Window(*values) for values in sizes]
