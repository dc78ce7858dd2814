"""Operators that work element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np

from ...shapes import normalize_axis
from ...values import Value
from ..call import NodeCall, Operator
from ..element_types import FLOATS, LIMITS, WRAPPING
from ..tensors import WRAPS_AS, Operand, Tensors, dtype_of, shape_of

_LARGEST: Final = float(np.finfo(np.float32).max)
#: Types of which float32 holds all numbers.
_WITHIN_FLOAT32: Final = frozenset(("float32", "float16", "bfloat16", "int16", "uint16", "int8", "uint8"))


def eltwise(algorithm: str, **parameters: tuple[str, float]) -> Operator:
    """Return the operator of a function of one variable; alpha and beta come from attributes with defaults."""

    def operator(call: NodeCall) -> Operand:
        given = {name: call.number(attribute, usual) for name, (attribute, usual) in parameters.items()}
        source, alpha, beta = call.operand(0), given.get("alpha"), given.get("beta")
        if not isinstance(source, Value):
            return call.math.eltwise(source, algorithm, alpha, beta)
        if source.dtype in (*WRAPPING, *WRAPS_AS) and (found := _of_whole(call.math, source, algorithm)) is not None:
            return found
        result = call.graph.eltwise(source, algorithm, alpha, beta, name=call.name)
        call.patterns.note_function(source, algorithm, result)
        return result

    return operator


def _of_whole(m: Tensors, x: Value, algorithm: str) -> Operand | None:
    """Return a function of integers that functions of two have exactly; None if there is no such function."""
    zero = m.number(0, x)
    if algorithm == "relu":
        return m.binary(x, zero, "max")
    if algorithm != "abs":
        return None
    return m.binary(x, zero, "wrap_abs_diff") if LIMITS[x.dtype][0] else x


def _wrapped(m: Tensors, left: Operand, right: Operand, algorithm: str) -> Operand:
    """Return a sum, difference or product of integers that loses the high bits that do not fit, as NumPy's does."""
    return m.binary(left, right, f"wrap_{algorithm}" if dtype_of(left) in WRAPS_AS else algorithm)


def arithmetic(algorithm: str) -> Operator:
    """Return the operator of a function of two variables; known arrays are computed at once."""

    def operator(call: NodeCall) -> Operand:
        left, right = call.operand(0), _legacy_broadcast(call)
        whole = algorithm == "div" and dtype_of(left) not in FLOATS
        if whole or not (isinstance(left, Value) or isinstance(right, Value)):
            return call.math.binary(left, right, algorithm)
        if dtype_of(left) in WRAPS_AS and algorithm in ("add", "sub", "mul"):
            return _wrapped(call.math, left, right, algorithm)
        call.tensor(0), call.tensor(1)
        found = call.patterns.function(left, right, algorithm)
        if found is not None:
            return call.graph.eltwise(*found, name=call.name)
        result = call.graph.binary(left, right, algorithm, name=call.name)
        call.patterns.note(left, right, algorithm, result)
        return result

    return operator


def variadic(algorithm: str) -> Operator:
    """Return the operator that combines any number of tensors, broadcasting them."""

    def operator(call: NodeCall) -> Operand:
        return _combine(call, call.operands_given(), algorithm)

    return operator


def _combine(call: NodeCall, operands: Sequence[Operand], algorithm: str) -> Operand:
    if not operands:
        raise call.malformed("it has no inputs")
    if algorithm == "add" and dtype_of(operands[0]) in WRAPS_AS:
        return reduce(lambda left, right: _wrapped(call.math, left, right, algorithm), operands)
    computed = any(isinstance(operand, Value) for operand in operands)
    if algorithm == "add" and computed and len({tuple(operand.shape) for operand in operands}) == 1:
        return operands[0] if len(operands) == 1 else call.graph.sum(operands, name=call.name)
    return reduce(lambda left, right: call.math.binary(left, right, algorithm), operands)


def clip(call: NodeCall) -> Operand:
    """Clip; the limits are attributes until opset 10, operands since."""
    source = call.tensor(0)
    limits: list[Operand | None] = [None, None]
    for index, name in enumerate(("min", "max")):
        if call.opset >= 11:
            limits[index] = call.optional(index + 1)
        elif name in call.attrs or dtype_of(source) != "float16":
            # Those of float32 unless given, so that infinities are clipped; float16 has no numbers beyond them.
            limits[index] = call.math.number(call.number(name, (-_LARGEST, _LARGEST)[index]), source)
    for limit in limits:
        if limit is not None and math.prod(limit.shape) != 1:
            raise call.malformed(f"limits of shape {tuple(limit.shape)}; expect single numbers")
    bounds = [_bound(limit, usual) for limit, usual in zip(limits, (-_LARGEST, _LARGEST), strict=True)]
    if dtype_of(source) in FLOATS and all(
        limit is not None and math.isfinite(bound) and _is_float32(bound)
        for limit, bound in zip(limits, bounds, strict=True)
    ):
        return call.graph.eltwise(call.math.value(source), "clip", *bounds, name=call.name)
    result: Operand = source
    for limit, algorithm in zip(limits, ("max", "min"), strict=True):
        if limit is not None:
            result = call.math.binary(result, call.math.reshape(limit, ()), algorithm)
    return result


def _bound(limit: Operand | None, usual: float) -> float:
    """Return a limit that is known, NaN for one that a model computes."""
    if limit is None:
        return usual
    return math.nan if isinstance(limit, Value) else float(limit.reshape(()))


def prelu(call: NodeCall) -> Operand:
    """Multiply negative elements by a slope; products of integers wrap."""
    source, slope, math_ = call.tensor(0), call.tensor(1), call.math
    dims, slopes = shape_of(source), shape_of(slope)
    fits = len(slopes) <= len(dims) and all(
        one in (1, size) for one, size in zip(slopes[::-1], dims[::-1], strict=False)
    )
    if isinstance(source, Value) and dtype_of(source) in FLOATS and fits and dims:
        return call.graph.prelu(source, slope, name=call.name)
    is_negative = math_.binary(source, math_.number(0, source), "lt")
    return math_.select(is_negative, _wrapped(math_, source, slope, "mul"), source)


def selu(call: NodeCall) -> Operand:
    """Scale an elu."""
    # The defaults are numbers of float32.
    alpha, gamma = call.number("alpha", 1.6732631921768188), call.number("gamma", 1.0507010221481323)
    inner = call.graph.eltwise(call.math.value(call.real(0)), "elu", alpha, name=call.name_part("elu"))
    return call.graph.eltwise(inner, "linear", gamma, name=call.name)


def mean(call: NodeCall) -> Operand:
    """Divide the sum by the number of tensors; of integers in float64."""
    operands = call.operands_given()
    kind = dtype_of(call.operand(0))
    if kind not in FLOATS:
        operands = [call.math.cast(each, "float64") for each in operands]
    return call.math.cast(call.math.eltwise(_combine(call, operands, "add"), "linear", 1 / len(operands)), kind)


def gelu(call: NodeCall) -> Operand:
    """Compute the exact form, with the error function, or the approximation by tanh."""
    algorithms = {"none": "gelu_erf", "tanh": "gelu_tanh"}
    approximate = call.text("approximate", "none")
    if approximate not in algorithms:
        raise call.unsupported(f"approximate={approximate!r} is not supported, only 'none' and 'tanh' are")
    return call.graph.eltwise(call.math.value(call.real(0)), algorithms[approximate], name=call.name)


def power(call: NodeCall) -> Operand:
    """Raise to a power, in the type of the base: powers of integers wrap, those by fractions are computed in float64."""
    base, exponent = call.operand(0), call.operand(1)
    if not isinstance(base, Value) and not isinstance(exponent, Value):
        return call.folding.combine(np.power, base, exponent)
    dtype, kind = dtype_of(base), dtype_of(exponent)
    number = math.nan if isinstance(exponent, Value) else _only(exponent)
    if dtype in LIMITS and (kind in LIMITS or number in range(65)):
        return _whole_power(call.math, base, exponent, number)
    if _is_float32(number):
        dims = np.broadcast_shapes(tuple(base.shape), exponent.shape)
        base = call.math.expand(call.math.reshape(base, (*(1,) * (len(dims) - len(base.shape)), *base.shape)), dims)
        wide = base if dtype in FLOATS else call.math.cast(base, "float64")
        algorithm = {2.0: "square", 0.5: "sqrt", 1.0: "linear"}.get(number)
        if algorithm is None:
            raised = call.graph.eltwise(wide, "pow", 1.0, number, name=call.name)
            call.patterns.note_power(call.operand(0), number, raised)
        else:
            raised = call.graph.eltwise(wide, algorithm, name=call.name)
        return _of_type(call.math, raised, dtype)
    computed = dtype if dtype == kind else "float32" if {dtype, kind} <= _WITHIN_FLOAT32 else "float64"
    base, exponent = (call.math.cast(each, computed) for each in (base, exponent))
    return _of_type(call.math, call.math.binary(base, exponent, "pow"), dtype)


def _whole_power(m: Tensors, base: Operand, exponent: Operand, number: float) -> Operand:
    """Return a power of integers by integers, all of which are ``number`` unless it is NaN; it wraps."""
    dtype, kind = dtype_of(base), dtype_of(exponent)
    if number == 2:
        dims = np.broadcast_shapes(shape_of(base), shape_of(exponent))
        square = _wrapped(m, base, base, "mul")
        return m.expand(m.reshape(square, (*(1,) * (len(dims) - len(base.shape)), *base.shape)), dims)
    # A type with all numbers of the exponents. The low bits of a power depend on nothing but those of its base.
    wide = kind if kind in ("int64", "uint64") else "int64" if kind == "uint32" else dtype
    return m.cast(m.binary(m.cast(base, wide), m.cast(exponent, wide), "wrap_pow"), dtype)


def _of_type(m: Tensors, raised: Operand, dtype: str) -> Operand:
    """Return a power in the data type of its base. For integers, one that is whole but for rounding is made whole first."""
    if dtype in FLOATS:
        return m.cast(raised, dtype)
    whole = m.eltwise(raised, "round")
    distance = m.eltwise(m.binary(raised, whole, "sub"), "abs")
    near = m.binary(distance, m.eltwise(m.eltwise(raised, "abs"), "linear", 1e-12), "le")
    return m.cast(m.select(near, whole, raised), dtype)


def _only(numbers: np.ndarray[Any, Any]) -> float:
    """Return the number that all elements of an array are, NaN if there is none."""
    first = numbers.reshape(-1)[:1]
    return float(first[0]) if first.size and bool((numbers == first).all()) else math.nan


def _is_float32(number: float) -> bool:
    """Return whether float32 holds a number exactly, as it holds parameters of functions."""
    return float(np.float32(number)) == number


def negative(call: NodeCall) -> Operand:
    """Multiply by -1."""
    source = call.operand(0)
    if not isinstance(source, Value):
        return call.folding.negate(source)
    if source.dtype in (*WRAPPING, *WRAPS_AS):
        return _wrapped(call.math, call.math.number(0, source), source, "sub")
    return call.graph.eltwise(source, "linear", -1.0, name=call.name)


def reciprocal(call: NodeCall) -> Operand:
    """Divide 1 by a tensor."""
    source = call.real(0)
    return call.math.binary(call.math.number(1, source), source, "div")


def modulo(call: NodeCall) -> Operand:
    """Return the rest of a division: with the sign of the divisor, or with ``fmod`` that of the dividend."""
    return call.math.binary(call.operand(0), call.operand(1), "fmod" if call.integer("fmod", 0) else "mod")


def in_float64(function: Callable[[Tensors, Operand], Operand]) -> Operator:
    """Return the operator of a function that several operations compute, in float64 so that none of them is noticed."""

    def operator(call: NodeCall) -> Operand:
        source = call.real(0)
        return call.math.cast(function(call.math, call.math.cast(call.math.value(source), "float64")), dtype_of(source))

    return operator


def _cosh(math_: Tensors, x: Operand) -> Operand:
    # As two squares, of which none overflows before the sum does.
    half = math_.eltwise(math_.eltwise(x, "abs"), "linear", 0.5)
    roots = [math_.eltwise(each, "exp") for each in (half, math_.eltwise(half, "linear", -1.0))]
    large, small = (math_.binary(math_.eltwise(each, "linear", 0.5), each, "mul") for each in roots)
    return math_.binary(large, small, "add")


def _sinh(math_: Tensors, x: Operand) -> Operand:
    return math_.binary(math_.eltwise(x, "tanh"), _cosh(math_, x), "mul")


def _asinh(math_: Tensors, x: Operand) -> Operand:
    size = math_.eltwise(x, "abs")
    root = math_.eltwise(math_.eltwise(math_.eltwise(size, "square"), "linear", 1.0, 1.0), "sqrt")
    # The square of a large number overflows, and adding 1 does not change it.
    root = math_.select(math_.binary(size, math_.number(1e10, x), "gt"), size, root)
    sign = math_.eltwise(math_.cast(math_.binary(x, math_.number(0, x), "lt"), "float64"), "linear", -2.0, 1.0)
    far = math_.binary(sign, _log_of_sum(math_, size, root), "mul")
    return _near_zero(math_, x, (-1 / 6, 3 / 40, -15 / 336, 105 / 3456), far)


def _acosh(math_: Tensors, x: Operand) -> Operand:
    above, below = (math_.eltwise(math_.eltwise(x, "linear", 1.0, each), "sqrt") for each in (1.0, -1.0))
    return _log_of_sum(math_, x, math_.binary(above, below, "mul"))


def _atanh(math_: Tensors, x: Operand) -> Operand:
    above, below = math_.eltwise(x, "linear", 1.0, 1.0), math_.eltwise(x, "linear", -1.0, 1.0)
    far = math_.eltwise(math_.eltwise(math_.binary(above, below, "div"), "log"), "linear", 0.5)
    return _near_zero(math_, x, (1 / 3, 1 / 5, 1 / 7, 1 / 9, 1 / 11), far)


def _log_of_sum(math_: Tensors, left: Operand, right: Operand) -> Operand:
    """Return the logarithm of a sum, which does not overflow."""
    half, other = (math_.eltwise(each, "linear", 0.5) for each in (left, right))
    return math_.eltwise(math_.eltwise(math_.binary(half, other, "add"), "log"), "linear", 1.0, math.log(2.0))


def _near_zero(math_: Tensors, x: Operand, factors: Sequence[float], far: Operand) -> Operand:
    """Return x + f0 x^3 + f1 x^5 and so on for small numbers, whose logarithms are imprecise, and ``far`` for others."""
    square = math_.eltwise(x, "square")
    total: Operand = math_.eltwise(square, "linear", factors[-1], factors[-2])
    for factor in (*factors[-3::-1], 1.0):
        total = math_.eltwise(math_.binary(total, square, "mul"), "linear", 1.0, factor)
    is_small = math_.binary(math_.eltwise(x, "abs"), math_.number(0.04, x), "lt")
    return math_.select(is_small, math_.binary(x, total, "mul"), far)


def rounding(function: Callable[[Tensors, Operand], Operand]) -> Operator:
    """Return the operator that rounds."""
    return lambda call: function(call.math, call.tensor(0))


def sign(call: NodeCall) -> Operand:
    """Return 1, 0 or -1, and NaN for NaN."""
    source, math_ = call.tensor(0), call.math
    if isinstance(source, Value) and dtype_of(source) in FLOATS:
        return call.graph.eltwise(source, "sign", name=call.name)
    if dtype_of(source) not in FLOATS:
        found = math_.binary(source, math_.number(1, source), "min")
        return found if dtype_of(source)[0] == "u" else math_.binary(found, math_.number(-1, source), "max")
    zero = math_.number(0, source)
    above, below = (math_.cast(math_.binary(source, zero, each), dtype_of(source)) for each in ("gt", "lt"))
    return math_.select(math_.binary(source, source, "ne"), source, math_.binary(above, below, "sub"))


def thresholded_relu(call: NodeCall) -> Operand:
    """Keep what is above a number."""
    source = call.real(0)
    # The number has the type of the tensor.
    alpha = float(call.math.number(call.number("alpha", 1.0), source))
    return call.math.eltwise(source, "threshold", alpha, 0.0)


def celu(call: NodeCall) -> Operand:
    """Scale an elu of a scaled number."""
    source, alpha = call.real(0), call.number("alpha", 1.0)
    if alpha == 1.0:
        return call.math.eltwise(source, "elu", 1.0)
    if not 2.0**-126 <= abs(alpha) <= 2.0**126:
        raise call.unsupported(f"alpha={alpha}")
    if alpha < 0:
        m = call.math
        scaled = m.eltwise(m.eltwise(m.eltwise(source, "linear", 1.0 / alpha), "exp"), "linear", alpha, -alpha)
        return m.binary(m.eltwise(source, "relu"), m.binary(scaled, m.number(0, source), "min"), "add")
    inner = call.math.eltwise(call.math.eltwise(source, "linear", 1.0 / alpha), "elu", 1.0)
    return call.math.eltwise(inner, "linear", alpha)


def erf(call: NodeCall) -> Operand:
    """Return the error function."""
    source = call.math.value(call.real(0))
    result = call.graph.eltwise(source, "erf", name=call.name)
    call.patterns.note_erf(source, result)
    return result


def _legacy_broadcast(call: NodeCall) -> Operand:
    """Return the second operand. Until opset 6 it may be aligned at an axis of the first: append dimensions of 1."""
    right = call.operand(1)
    if call.opset >= 7 or not call.integer("broadcast", 0) or "axis" not in call.attrs:
        return right
    ndims = len(call.shape(0))
    behind = ndims - normalize_axis(call.integer("axis"), ndims) - len(right.shape)
    return call.math.reshape(right, (*right.shape, *(1,) * behind))


OPERATORS: Final[Mapping[str, Operator]] = {
    "Relu": eltwise("relu"),
    "Tanh": eltwise("tanh"),
    "Sigmoid": eltwise("logistic"),
    "Exp": eltwise("exp"),
    "Log": eltwise("log"),
    "Sqrt": eltwise("sqrt"),
    "Abs": eltwise("abs"),
    "Round": eltwise("round"),
    "Softplus": eltwise("softplus"),
    "Mish": eltwise("mish"),
    "HardSwish": eltwise("hardswish"),
    "Elu": eltwise("elu", alpha=("alpha", 1.0)),
    "LeakyRelu": eltwise("relu", alpha=("alpha", 0.01)),
    "HardSigmoid": eltwise("hardsigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5)),
    "Swish": eltwise("swish", alpha=("alpha", 1.0)),
    "Erf": erf,
    "Floor": rounding(Tensors.floor),
    "Ceil": rounding(Tensors.ceil),
    "Sign": sign,
    "Sinh": in_float64(_sinh),
    "Cosh": in_float64(_cosh),
    "Asinh": in_float64(_asinh),
    "Acosh": in_float64(_acosh),
    "Atanh": in_float64(_atanh),
    "Clip": clip,
    "PRelu": prelu,
    "Selu": selu,
    "Celu": celu,
    "ThresholdedRelu": thresholded_relu,
    "Softsign": eltwise("softsign"),
    "Mean": mean,
    "Gelu": gelu,
    "Pow": power,
    "Neg": negative,
    "Reciprocal": reciprocal,
    "Mod": modulo,
    "Add": arithmetic("add"),
    "Sub": arithmetic("sub"),
    "Mul": arithmetic("mul"),
    "Div": arithmetic("div"),
    "Sum": variadic("add"),
    "Max": variadic("max"),
    "Min": variadic("min"),
}
