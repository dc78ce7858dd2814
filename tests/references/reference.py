"""Compute any operation descriptor with its post-ops on plain arrays in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    Prelu,
    PrimitiveAttr,
    Reduction,
    Reorder,
    Resampling,
    Shuffle,
    Softmax,
    Sum,
    multiple_src,
)

from .binary import binary, total
from .concat import concat
from .convolution import convolution
from .eltwise import eltwise
from .eltwise_gradient import eltwise_gradient
from .normalization import batch_normalization, lrn, lrn_within
from .pooling import pooling
from .prelu import prelu
from .products import inner_product, matmul
from .quantisation import dequantised, finished
from .reduction import reduction
from .resampling import resampling
from .shuffle import shuffle
from .softmax import softmax, softmax_gradient

Array = NDArray[Any]


def reference(op: OpDesc, attr: PrimitiveAttr, args: Mapping[int, Array]) -> Array:
    """Return dst in float64 from arrays in logical dimensions by execution argument; layouts do not matter.

    Scales, zero points and post-ops are applied; it is not rounded to dst's type. Execution arguments that the operation
    writes may be absent from ``args``, unless a sum post-op reads them.
    """
    value = _operation(op, dequantised(attr, args))
    return finished(attr, op.memories()[Arg.DST], value, args)


def results(op: OpDesc, attr: PrimitiveAttr, args: Mapping[int, Array]) -> dict[int, Array]:
    """Return everything that an operation writes in float64, by execution argument; see `reference`."""
    wide = dequantised(attr, args)
    match op:
        case Eltwise() if not op.is_forward:
            data = wide[Arg.DST if op.use_dst else Arg.SRC]
            gradient = eltwise_gradient(op.algorithm, data, wide[Arg.DIFF_DST], op.alpha, op.beta, op.use_dst)
            return {Arg.DIFF_SRC: gradient}
        case Softmax() if not op.is_forward:
            return {Arg.DIFF_SRC: softmax_gradient(wide[Arg.DST], wide[Arg.DIFF_DST], op.axis, op.algorithm)}
        case _:
            return {Arg.DST: reference(op, attr, args)}


def _operation(op: OpDesc, args: Mapping[int, Array]) -> Array:
    match op:
        case Sum() | Concat():
            srcs = [args[multiple_src(i)] for i in range(len(op.srcs))]
            return total(srcs, op.scales) if isinstance(op, Sum) else concat(srcs, op.axis)
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
            function = lrn if op.algorithm == "across_channels" else lrn_within
            return function(args[Arg.SRC], op.local_size, op.alpha, op.beta, op.k)
        case Softmax():
            return softmax(args[Arg.SRC], op.axis, op.algorithm)
        case Reorder():
            return args[Arg.SRC]
        case Prelu():
            return prelu(args[Arg.SRC], args[Arg.WEIGHTS])
        case Shuffle():
            return shuffle(args[Arg.SRC], op.axis, op.group_size)
        case Reduction():
            return reduction(op, args[Arg.SRC])
        case Resampling():
            return resampling(op, args[Arg.SRC])
        case _:
            raise ValueError(f"no reference for {op.kind}")
