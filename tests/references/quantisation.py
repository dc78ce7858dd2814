"""What scales, zero points and the chain of post-ops do, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, MemoryDesc, PrimitiveAttr, Quantisation, post_op_src, scales_of, zero_points_of

from .binary import binary
from .data_types import converted, numpy_type
from .eltwise import eltwise

Array = NDArray[Any]


def dequantised(attr: PrimitiveAttr, args: Mapping[int, Array]) -> dict[int, Array]:
    """Return all arguments in float64, those with scales or zero points as the numbers that they stand for.

    dst is left as it is: its former content is what a sum post-op reads.
    """
    wide = {int(arg): np.asarray(values, np.float64) for arg, values in args.items()}
    for item in attr.zero_points:
        if item.arg != Arg.DST:
            points = given_values(item, zero_points_of(item.arg), args)
            wide[item.arg] = wide[item.arg] - _along(item, points, wide[item.arg].shape)
    for item in attr.scales:
        if item.arg != Arg.DST:
            scales = given_values(item, scales_of(item.arg), args)
            wide[item.arg] = wide[item.arg] * _along(item, scales, wide[item.arg].shape)
    return wide


def finished(attr: PrimitiveAttr, dst: MemoryDesc, value: Array, args: Mapping[int, Array]) -> Array:
    """Return post_ops(value) / scale + zero point, not yet rounded to the data type of ``dst``."""
    for index, step in enumerate(attr.post_ops):
        if step.kind == "eltwise":
            value = eltwise(step.algorithm, value, step.alpha, step.beta)
        elif step.kind == "binary":
            value = binary(step.algorithm, value, args[post_op_src(index)].astype(np.float64))
        else:
            before = args[Arg.DST]
            if before.dtype != numpy_type(dst.dtype):
                before = converted(before, dst.dtype)
            if step.dtype:
                before = before.copy().view(numpy_type(step.dtype))
            value = value + np.float64(np.float32(step.alpha)) * (before.astype(np.float64) - step.beta)
    for item in attr.scales:
        if item.arg == Arg.DST:
            value = value / _along(item, given_values(item, scales_of(Arg.DST), args), value.shape)
    for item in attr.zero_points:
        if item.arg == Arg.DST:
            value = value + _along(item, given_values(item, zero_points_of(Arg.DST), args), value.shape)
    return value


def given_values(item: Quantisation, arg: int, args: Mapping[int, Array]) -> Array:
    """Return scales or zero points: constants, or what argument ``arg`` holds."""
    return np.array(item.values) if item.values else args[arg]


def _along(item: Quantisation, values: Array, shape: tuple[int, ...]) -> Array:
    """Return one value for each index of the masked dimensions, in a shape that broadcasts to the argument's."""
    sizes = [size if item.mask >> dim & 1 else 1 for dim, size in enumerate(shape)]
    return values.astype(np.float64).reshape(sizes)
