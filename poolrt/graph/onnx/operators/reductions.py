"""Reductions along axes, arg-reductions, cumulative sums and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from ...shapes import normalize_axes, normalize_axis
from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import FLOATS
from ..rearranging import accumulate, arg_reduce
from ..tensors import WRAPS_AS, Operand, Tensors, dtype_of

#: The greatest finite number of a type.
_LARGEST: Final = {
    "float64": float(np.finfo(np.float64).max), "float32": float(np.finfo(np.float32).max), "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
}  # fmt: skip


def reduction(
    algorithm: str, after: Callable[[Tensors, Operand], Operand] | None = None, p: float | None = None
) -> Operator:
    """Return the operator that reduces, with a function that is applied to the results."""
    return lambda call: _reduce(call, algorithm, after, p)


def _reduce(
    call: NodeCall,
    algorithm: str,
    after: Callable[[Tensors, Operand], Operand] | None = None,
    p: float | None = None,
) -> Operand:
    value, axes = call.operand(0), reduced_axes(call)
    if axes:
        value = call.math.reduce(value, algorithm, axes, bool(call.integer("keepdims", 1)), p)
    elif algorithm.startswith("norm"):
        value = _of_one(call.math, value, algorithm.endswith("power_p_sum"))
    return value if after is None else after(call.math, value)


def _of_one(m: Tensors, x: Operand, squared: bool) -> Operand:
    """Return the norm of each element, or its square."""
    kind = dtype_of(x)
    if kind in FLOATS:
        return m.eltwise(x, "square" if squared else "abs")
    wraps = "wrap_" if kind in WRAPS_AS else ""
    if squared:
        return m.binary(x, x, f"{wraps}mul")
    return x if kind.startswith("u") else m.binary(x, m.binary(m.number(0, x), x, f"{wraps}sub"), "max")


def norm(call: NodeCall) -> Operand:
    """Return the root of the sum of squares; of integers in float64, with its fraction cut off."""
    kind = dtype_of(call.operand(0))
    if kind in FLOATS:
        return _reduce(call, "norm_lp_sum", p=2.0)
    wide = call.with_operands(call.math.cast(call.operand(0), "float64"), *call.operands[1:])
    return call.math.cast(_reduce(wide, "norm_lp_sum", p=2.0), kind)


def reduced_axes(call: NodeCall) -> tuple[int, ...]:
    """Return the axes of a reduction, which are all of them unless given; none if an attribute says that."""
    axes = call.axes(1)
    if axes:
        return tuple(sorted(normalize_axes(axes, len(call.shape(0)))))
    return () if call.integer("noop_with_empty_axes", 0) else tuple(range(len(call.shape(0))))


def log_sum_exp(call: NodeCall) -> Operand:
    """Return the logarithm of the sum of exponentials, less and plus the greatest element; of integers in float64."""
    source, m = call.operand(0), call.math
    kind = dtype_of(source)
    if kind in FLOATS:
        return _log_sum_exp(call, source)
    return m.cast(_log_sum_exp(call, m.cast(source, "float64")), kind)


def _log_sum_exp(call: NodeCall, source: Operand) -> Operand:
    axes, m = reduced_axes(call), call.math
    if not math.prod(source.shape) and not isinstance(source, Value):
        return m.eltwise(m.reduce(source, "sum", axes, bool(call.integer("keepdims", 1))), "log")
    if not axes:
        return source
    greatest = m.reduce(source, "max", axes, True)
    if not isinstance(greatest, Value):
        greatest = m.value(greatest)
    # Less an infinite element, all of them would be NaN.
    largest = _LARGEST[dtype_of(source)]
    finite = m.binary(m.binary(greatest, m.number(-largest, greatest), "max"), m.number(largest, greatest), "min")
    total = m.reduce(m.eltwise(m.binary(source, finite, "sub"), "exp"), "sum", axes, True)
    result = m.binary(m.eltwise(total, "log"), finite, "add")
    if call.integer("keepdims", 1):
        return result
    return m.squeeze(result, axes)


def _mean(call: NodeCall) -> Operand:
    source = call.operand(0)
    axes = reduced_axes(call)
    if 0 in source.shape:
        # The mean of nothing is 0 in ONNX Runtime.
        return call.math.reduce(source, "sum", axes, bool(call.integer("keepdims", 1))) if axes else source
    rank = len(source.shape)
    if isinstance(source, Value) and rank > 2 and axes == tuple(range(2, rank)) and source.dtype == "float32":
        # A global pooling works in the layout that convolutions use.
        pooled = call.graph.pooling(source, "avg_include_padding", source.shape[2:], name=call.name)
        return pooled if call.integer("keepdims", 1) else call.math.squeeze(pooled, axes)
    if dtype_of(source) not in FLOATS:
        wide = call.math.cast(source, "float64")
        mean = call.math.reduce(wide, "mean", axes, bool(call.integer("keepdims", 1))) if axes else wide
        return call.math.cast(mean, dtype_of(source))
    return call.math.reduce(source, "mean", axes, bool(call.integer("keepdims", 1))) if axes else source


def _log(m: Tensors, x: Operand) -> Operand:
    kind = dtype_of(x)
    return m.eltwise(x, "log") if kind in FLOATS else m.cast(m.eltwise(m.cast(x, "float64"), "log"), kind)


def arg_reduction(algorithm: str) -> Operator:
    """Return the operator that finds the place of the greatest or least element along an axis."""

    def operator(call: NodeCall) -> Operand:
        source = call.tensor(0)
        axis = call.axis(len(source.shape), 0)
        keep, last = bool(call.integer("keepdims", 1)), bool(call.integer("select_last_index", 0))
        return arg_reduce(call.math, source, algorithm, axis, keep, last)

    return operator


def cumulative(algorithm: str) -> Operator:
    """Return the operator that adds up or multiplies along an axis."""

    def operator(call: NodeCall) -> Operand:
        source = call.tensor(0)
        given = call.known(1, "the axis")
        if given.size != 1 or given.dtype.kind not in "iu":
            raise call.malformed("the axis: expect one integer")
        axis = normalize_axis(int(given.reshape(())), len(source.shape))
        exclusive, reverse = (bool(call.integer(name, 0)) for name in ("exclusive", "reverse"))
        return accumulate(call.math, source, axis, algorithm, exclusive, reverse)

    return operator


def size(call: NodeCall) -> Operand:
    """Return the number of elements."""
    return np.asarray(math.prod(call.shape(0)), np.int64)


OPERATORS: Final[Mapping[str, Operator]] = {
    "ReduceSum": reduction("sum"),
    "ReduceMax": reduction("max"),
    "ReduceMin": reduction("min"),
    "ReduceProd": reduction("mul"),
    "ReduceMean": _mean,
    "ReduceL1": reduction("norm_lp_sum", p=1.0),
    "ReduceL2": norm,
    "ReduceSumSquare": reduction("norm_lp_power_p_sum", p=2.0),
    "ReduceLogSum": reduction("sum", after=_log),
    "ReduceLogSumExp": log_sum_exp,
    "ArgMax": arg_reduction("max"),
    "ArgMin": arg_reduction("min"),
    "CumSum": cumulative("add"),
    "CumProd": cumulative("mul"),
    "Size": size,
}
