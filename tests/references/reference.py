"""Compute any operation descriptor with its post-ops on plain arrays in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import (
    LIMITS,
    WRAPPING,
    Arg,
    ArgReduction,
    Attention,
    BatchNormalization,
    Binary,
    Concat,
    Convolution,
    CumulativeSum,
    Deconvolution,
    Determinant,
    Dft,
    DynamicLstm,
    DynamicQuantise,
    Eltwise,
    Fold,
    Gather,
    GridSample,
    GroupNormalization,
    Gru,
    InnerProduct,
    LayerNormalization,
    Lrn,
    Lstm,
    Matmul,
    MatmulNbits,
    NonMaxSuppression,
    NonZero,
    OpDesc,
    Pad,
    Pooling,
    Prelu,
    PrimitiveAttr,
    Reduction,
    Reorder,
    Resampling,
    Rnn,
    RoiAlign,
    Rotary,
    Scatter,
    Select,
    Shuffle,
    Softmax,
    Sum,
    TopK,
    TreeLeaves,
    multiple_src,
    scales_of,
)
from poolrt.workers.desc.operations.binary import BITWISE_ALGORITHMS

from .arg_reduction import arg_reduction
from .attention import attention
from .binary import FUNCTIONS, QUOTIENTS, binary, bitwise, total
from .concat import concat
from .convolution import convolution, deconvolution
from .cumulative_sum import cumulative_sum
from .data_types import numpy_type
from .determinant import determinant
from .dft import dft
from .dynamic_lstm import dynamic_lstm
from .dynamic_quantise import dynamic_quantise
from .eltwise import eltwise
from .fold import fold
from .gather import gather
from .gradients import gradients
from .grid_sample import grid_sample
from .matmul_nbits import matmul_nbits
from .moments import normalization
from .non_max_suppression import non_max_suppression
from .normalization import lrn, lrn_within
from .pad import pad
from .pooling import pooling, pooling_winners
from .prelu import prelu
from .products import inner_product, matmul
from .quantisation import dequantised, finished, given_values
from .recurrent import recurrent
from .reduction import reduction
from .resampling import resampling
from .roi_align import roi_align
from .rotary import rotary
from .scatter import scatter
from .shuffle import shuffle
from .softmax import softmax
from .top_k import top_k
from .tree_leaves import tree_leaves

Array = NDArray[Any]


def reference(op: OpDesc, attr: PrimitiveAttr, args: Mapping[int, Array]) -> Array:
    """Return dst in float64 from arrays in logical dimensions by execution argument; layouts do not matter.

    Scales, zero points and post-ops are applied; it is not rounded to dst's type. Execution arguments that the operation
    writes may be absent from ``args``, unless a sum post-op reads them.
    """
    wide = dequantised(attr, args)
    value = _wrapped(op, wide) if _wraps(op, attr) else _operation(op, wide)
    return finished(attr, op.memories()[Arg.DST], value, args)


def _wraps(op: OpDesc, attr: PrimitiveAttr) -> bool:
    """Return whether the results of an operation on integers wrap."""
    arithmetic = (
        (isinstance(op, Binary) and op.algorithm in ("add", "sub", "mul"))
        or (isinstance(op, Sum) and not op.scales)
        or (isinstance(op, Reduction) and op.algorithm in ("sum", "mul"))
        or isinstance(op, CumulativeSum)
        or (isinstance(op, Matmul) and op.bias is None)
        or (isinstance(op, Reorder) and op.wraps)
        or (isinstance(op, Scatter) and op.reduction in ("add", "mul"))
    )
    types = {md.dtype for md in op.memories().values()}
    if isinstance(op, Scatter):
        types = {op.src.dtype, op.updates.dtype, op.dst.dtype}
    one = len(types) == 1 and types <= {*(LIMITS if isinstance(op, Scatter) else WRAPPING)}
    return (
        arithmetic and attr.is_plain and not attr.post_ops and (one or (isinstance(op, Reorder) and types <= {*LIMITS}))
    )


def _wrapped(op: OpDesc, args: Mapping[int, Array]) -> Array:
    """Return the results of an operation whose results wrap; operands are integers that float64 holds."""
    whole = {arg: each.astype(np.int64).astype(np.uint64) for arg, each in args.items()}
    match op:
        case Binary():
            found = FUNCTIONS[op.algorithm](whole[Arg.SRC], whole[Arg.SRC_1])
        case Sum():
            found = np.sum([whole[multiple_src(i)] for i in range(len(op.srcs))], 0)
        case CumulativeSum():
            found = cumulative_sum(op, whole[Arg.SRC])
        case Matmul():
            found = matmul(whole[Arg.SRC], whole[Arg.WEIGHTS], None)
        case Reduction():
            axes = tuple(i for i, (d, s) in enumerate(zip(op.dst.dims, op.src.dims, strict=True)) if d == 1 and s != 1)
            found = (np.prod if op.algorithm == "mul" else np.sum)(whole[Arg.SRC], axis=axes, keepdims=True)
        case Scatter():
            found = scatter(op, whole[Arg.SRC], args[Arg.SRC_1], whole[Arg.SRC_2])
        case _:
            found = whole[Arg.SRC]
    return found.astype(numpy_type(op.memories()[Arg.DST].dtype)).astype(np.float64)


def results(op: OpDesc, attr: PrimitiveAttr, args: Mapping[int, Array]) -> dict[int, Array]:
    """Return everything that an operation writes in float64, by execution argument; see `reference`."""
    wide = dequantised(attr, args)
    if not op.is_forward:
        return gradients(op, wide)
    match op:
        case BatchNormalization() | LayerNormalization() | GroupNormalization():
            found = normalization(op, {**wide, Arg.SRC: np.asarray(args[Arg.SRC], np.float64)})
            # Scales of src multiply the result.
            for item in attr.scales:
                if item.arg == Arg.SRC:
                    found[Arg.DST] = found[Arg.DST] * float(given_values(item, scales_of(Arg.SRC), args)[0])
            return {**found, Arg.DST: finished(attr, op.dst, found[Arg.DST], args)}
        case Rnn() | Lstm() | Gru():
            return recurrent(op, wide)
        case TopK():
            values, indices = top_k(op, wide[Arg.SRC])
            return {Arg.DST: values, Arg.DST_1: indices}
        case DynamicLstm():
            return dict(zip((Arg.DST, Arg.DST_1), dynamic_lstm(op, wide), strict=True))
        case DynamicQuantise():
            return dict(zip((Arg.DST, Arg.DST_1, Arg.DST_2), dynamic_quantise(wide[Arg.SRC]), strict=True))
        case NonMaxSuppression():
            rows, count = non_max_suppression(op, wide[Arg.SRC], wide[Arg.SRC_1], wide[Arg.SRC_2])
            return {Arg.DST: rows, Arg.DST_1: count}
        case NonZero():
            places = np.argwhere(wide[Arg.SRC]).T
            columns = np.zeros(op.indices.dims)
            columns[:, : places.shape[1]] = places
            return {Arg.DST: columns, Arg.DST_1: np.array([float(places.shape[1])])}
        case Pooling() if Arg.WORKSPACE in op.outputs():
            return {Arg.DST: reference(op, attr, args), Arg.WORKSPACE: pooling_winners(op, wide[Arg.SRC])}
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
        case MatmulNbits():
            points, bias = args.get(Arg.SHIFT), args.get(Arg.BIAS)
            return matmul_nbits(op, args[Arg.SRC], args[Arg.WEIGHTS], args[Arg.SCALE], points, bias)
        case InnerProduct():
            return inner_product(args[Arg.SRC], args[Arg.WEIGHTS], args.get(Arg.BIAS))
        case Pooling():
            return pooling(op, args[Arg.SRC])
        case Eltwise():
            return eltwise(op.algorithm, args[Arg.SRC], op.alpha, op.beta)
        case Binary() if op.algorithm in BITWISE_ALGORITHMS:
            return bitwise(op.algorithm, args[Arg.SRC], args[Arg.SRC_1], numpy_type(op.dst.dtype))
        case Binary():
            found = binary(op.algorithm, args[Arg.SRC], args[Arg.SRC_1])
            if op.algorithm in QUOTIENTS and op.src0.dtype in LIMITS and op.src1.dtype in LIMITS:
                return np.where(args[Arg.SRC_1] == 0, 0.0, found)
            return found
        case Deconvolution():
            return deconvolution(op, args[Arg.SRC], args[Arg.WEIGHTS], args.get(Arg.BIAS))
        case BatchNormalization():
            return normalization(op, dict(args))[Arg.DST]
        case Lrn():
            function = lrn if op.algorithm == "across_channels" else lrn_within
            return function(args[Arg.SRC], op.local_size, op.alpha, op.beta, op.k)
        case Softmax():
            return softmax(args[Arg.SRC], op.axis, op.algorithm)
        case Attention():
            return attention(op, args[Arg.SRC], args[Arg.SRC_1], args[Arg.SRC_2], args.get(Arg.SHIFT))
        case Gather():
            return gather(op, args[Arg.SRC], args[Arg.SRC_1])
        case Rotary():
            return rotary(op, args[Arg.SRC], args[Arg.SRC_1], args[Arg.SRC_2])
        case GridSample():
            return grid_sample(op, args[Arg.SRC], args[Arg.SRC_1])
        case TreeLeaves():
            return tree_leaves(op, *(args[arg] for arg in (Arg.SRC, Arg.SRC_1, Arg.SRC_2, Arg.WEIGHTS)))
        case RoiAlign():
            return roi_align(op, args[Arg.SRC], args[Arg.SRC_1], args[Arg.SRC_2])
        case Scatter():
            return scatter(op, args[Arg.SRC], args[Arg.SRC_1], args[Arg.SRC_2])
        case Select():
            return np.broadcast_to(np.where(args[Arg.SRC] != 0, args[Arg.SRC_1], args[Arg.SRC_2]), op.dst.dims)
        case ArgReduction():
            return arg_reduction(op, args[Arg.SRC])
        case Pad():
            return pad(op, args[Arg.SRC])
        case CumulativeSum():
            return cumulative_sum(op, args[Arg.SRC])
        case Fold():
            return fold(op, args[Arg.SRC])
        case Determinant():
            return determinant(args[Arg.SRC])
        case Dft():
            return dft(op, args[Arg.SRC])
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
