"""Compute any operation descriptor with its post-ops on plain arrays in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Binary,
    Concat,
    Convolution,
    Eltwise,
    InnerProduct,
    Lrn,
    Matmul,
    OpDesc,
    Pooling,
    PrimitiveAttr,
    Reorder,
    Softmax,
    Sum,
    multiple_src,
    post_op_src,
)

from .binary import binary, total
from .concat import concat
from .convolution import convolution
from .eltwise import eltwise
from .normalization import batch_normalization, lrn
from .pooling import pooling
from .products import inner_product, matmul
from .softmax import softmax

Array = NDArray[Any]


def reference(op: OpDesc, attr: PrimitiveAttr, args: Mapping[int, Array]) -> Array:
    """Return dst in float64 from arrays in logical dimensions by execution argument; layouts do not matter.

    Execution arguments that the operation writes may be absent from ``args``.
    """
    wide = {int(number): np.asarray(array, np.float64) for number, array in args.items()}
    return apply_post_ops(attr, _operation(op, wide), wide)


def apply_post_ops(attr: PrimitiveAttr, value: Array, args: Mapping[int, Array]) -> Array:
    """Return ``value`` after the chain of post-ops; binary ones take their second source from ``args``."""
    for index, step in enumerate(attr.post_ops):
        if step.kind == "eltwise":
            value = eltwise(step.algorithm, value, step.alpha, step.beta)
        else:
            value = binary(step.algorithm, value, args[post_op_src(index)])
    return value


def _operation(op: OpDesc, args: Mapping[int, Array]) -> Array:
    match op:
        case Sum() | Concat():
            srcs = [args[multiple_src(i)] for i in range(len(op.srcs))]
            return total(srcs) if isinstance(op, Sum) else concat(srcs, op.axis)
        case Convolution():
            return convolution(op, args[Arg.SRC], args[Arg.WEIGHTS], args.get(Arg.BIAS))
        case Matmul():
            return matmul(args[Arg.SRC], args[Arg.WEIGHTS], args.get(Arg.BIAS))
        case InnerProduct():
            return inner_product(args[Arg.SRC], args[Arg.WEIGHTS], args.get(Arg.BIAS))
        case Pooling():
            return pooling(op, args[Arg.SRC])
        case Eltwise():
            return eltwise(op.algorithm, args[Arg.SRC], op.alpha, op.beta)
        case Binary():
            return binary(op.algorithm, args[Arg.SRC], args[Arg.SRC_1])
        case BatchNormalization():
            statistics = (args[Arg.MEAN], args[Arg.VARIANCE], args[Arg.SCALE], args[Arg.SHIFT])
            return batch_normalization(args[Arg.SRC], *statistics, op.epsilon)
        case Lrn():
            return lrn(args[Arg.SRC], op.local_size, op.alpha, op.beta, op.k)
        case Softmax():
            return softmax(args[Arg.SRC], op.axis, op.algorithm)
        case Reorder():
            return args[Arg.SRC]
        case _:
            raise ValueError(f"no reference for {op.kind}")
