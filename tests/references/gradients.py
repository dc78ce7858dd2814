"""The gradients of any operation, from plain arrays in float64 by execution argument."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Convolution,
    Eltwise,
    InnerProduct,
    LayerNormalization,
    OpDesc,
    Pooling,
    Softmax,
)

from .convolution import convolution_backward_data, convolution_backward_weights
from .eltwise_gradient import eltwise_gradient
from .moments import normalization_backward
from .pooling import pooling_backward
from .products import inner_product_backward_data, inner_product_backward_weights
from .softmax import softmax_gradient

Array = NDArray[Any]


def gradients(op: OpDesc, args: dict[int, Array]) -> dict[int, Array]:
    """Return every gradient that a backward operation writes."""
    errors = args[Arg.DIFF_DST]
    match op:
        case Eltwise():
            data = args[Arg.DST if op.use_dst else Arg.SRC]
            found = {Arg.DIFF_SRC: eltwise_gradient(op.algorithm, data, errors, op.alpha, op.beta, op.use_dst)}
        case Softmax():
            found = {Arg.DIFF_SRC: softmax_gradient(args[Arg.DST], errors, op.axis, op.algorithm)}
        case Convolution() if op.prop == "backward_data":
            found = {Arg.DIFF_SRC: convolution_backward_data(op, args[Arg.WEIGHTS], errors)}
        case InnerProduct() if op.prop == "backward_data":
            found = {Arg.DIFF_SRC: inner_product_backward_data(args[Arg.WEIGHTS], errors)}
        case Convolution():
            weights, bias = convolution_backward_weights(op, args[Arg.SRC], errors)
            found = {Arg.DIFF_WEIGHTS: weights, Arg.DIFF_BIAS: bias}
        case InnerProduct():
            weights, bias = inner_product_backward_weights(args[Arg.SRC], errors)
            found = {Arg.DIFF_WEIGHTS: weights, Arg.DIFF_BIAS: bias}
        case Pooling():
            found = {Arg.DIFF_SRC: pooling_backward(op, errors, args.get(Arg.WORKSPACE))}
        case BatchNormalization() | LayerNormalization():
            return normalization_backward(op, args)
        case _:
            raise ValueError(f"no gradients of {op.kind}")
    return {int(arg): found[Arg(arg)] for arg in op.outputs()}
