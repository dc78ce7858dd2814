"""Operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

import numpy as np

from ...shapes import normalize_axis
from ...values import Value
from ..call import NodeCall, Operand, Operator
from ..folding import Array, Folding

_LARGEST: Final = float(np.finfo(np.float32).max)


def eltwise(algorithm: str, **parameters: tuple[str, float]) -> Operator:
    """Return the operator of a function of one variable; alpha and beta come from attributes with defaults."""

    def operator(call: NodeCall) -> Operand:
        given = {name: call.number(attribute, usual) for name, (attribute, usual) in parameters.items()}
        alpha, beta = given.get("alpha"), given.get("beta")
        return call.graph.eltwise(call.tensor(0), algorithm, alpha, beta, name=call.name)

    return operator


def arithmetic(algorithm: str, fold: Callable[[Folding, Array, Array], Array]) -> Operator:
    """Return the operator of a function of two variables; known arrays are computed at once."""

    def operator(call: NodeCall) -> Operand:
        left, right = call.operand(0), _legacy_broadcast(call)
        if not isinstance(left, Value) and not isinstance(right, Value):
            return fold(call.folding, left, right)
        call.tensors()
        return call.graph.binary(left, right, algorithm, name=call.name)

    return operator


def variadic(algorithm: str) -> Operator:
    """Return the operator that combines any number of tensors, broadcasting them."""

    def operator(call: NodeCall) -> Operand:
        operands = call.tensors()
        if algorithm == "add" and len({tuple(operand.shape) for operand in operands}) == 1:
            return operands[0] if len(operands) == 1 else call.graph.sum(operands, name=call.name)

        def combine(left: Operand, right: Operand) -> Operand:
            return call.graph.binary(left, right, algorithm, name=call.name_part(algorithm))

        return reduce(combine, operands)

    return operator


def clip(call: NodeCall) -> Operand:
    """Clip; the limits are attributes until opset 10, operands since."""
    limits = [-_LARGEST, _LARGEST]
    computed: list[tuple[int, str]] = []
    for index, (name, opposite) in enumerate((("min", "max"), ("max", "min"))):
        if call.opset < 11:
            limits[index] = call.number(name, limits[index])
        elif call.has(index + 1):
            given = call.tensor(index + 1)
            if isinstance(given, Value):
                computed.append((index + 1, opposite))
            else:
                limits[index] = float(given.reshape(()))
    result = call.graph.eltwise(call.tensor(0), "clip", *limits, name=call.name)
    for index, algorithm in computed:
        result = call.graph.binary(result, call.tensor(index), algorithm, name=call.name_part(algorithm))
    return result


def prelu(call: NodeCall) -> Operand:
    """Add the positive part, and the negative part times a slope."""
    source = call.tensor(0)
    negative_part = call.graph.binary(source, 0.0, "min", name=call.name_part("min"))
    scaled = call.graph.binary(negative_part, call.tensor(1), "mul", name=call.name_part("mul"))
    return call.graph.binary(
        call.graph.eltwise(source, "relu", name=call.name_part("relu")), scaled, "add", name=call.name
    )


def selu(call: NodeCall) -> Operand:
    """Scale an elu."""
    alpha, gamma = call.number("alpha", 1.67326319), call.number("gamma", 1.05070102)
    inner = call.graph.eltwise(call.tensor(0), "elu", alpha, name=call.name_part("elu"))
    return call.graph.eltwise(inner, "linear", gamma, name=call.name)


def mean(call: NodeCall) -> Operand:
    """Divide the sum by the number of tensors."""
    total = variadic("add")(call)
    return call.graph.eltwise(total, "linear", 1 / len(call.operands), name=call.name_part("mean"))


def softsign(call: NodeCall) -> Operand:
    """Compute x / (1 + |x|)."""
    source = call.tensor(0)
    divisor = call.graph.eltwise(
        call.graph.eltwise(source, "abs", name=call.name_part("abs")), "linear", 1.0, 1.0, name=call.name_part("add")
    )
    return call.graph.binary(source, divisor, "div", name=call.name)


def gelu(call: NodeCall) -> Operand:
    """Compute the exact form, with the error function; no approximation is supported."""
    approximate = call.text("approximate", "none")
    if approximate != "none":
        raise call.unsupported(f"approximate={approximate!r} is not supported, only 'none' is")
    return call.graph.eltwise(call.tensor(0), "gelu_erf", name=call.name)


def power(call: NodeCall) -> Operand:
    """Raise to an exponent for which there is an eltwise function; no other is supported."""
    base, exponent = call.operand(0), call.known(1, "the exponent")
    if not isinstance(base, Value):
        return call.folding.combine(np.power, base, exponent)
    algorithm = {2.0: "square", 0.5: "sqrt", 1.0: "linear"}.get(float(exponent.flat[0])) if exponent.size == 1 else None
    if algorithm is None:
        raise call.unsupported("only the exponents 0.5, 1 and 2 are supported")
    return call.graph.eltwise(base, algorithm, name=call.name)


def negative(call: NodeCall) -> Operand:
    """Multiply by -1."""
    source = call.operand(0)
    if isinstance(source, Value):
        return call.graph.eltwise(source, "linear", -1.0, name=call.name)
    return call.folding.negate(source)


def reciprocal(call: NodeCall) -> Operand:
    """Divide 1 by a tensor."""
    return call.graph.binary(np.ones(1, np.float32), call.tensor(0), "div", name=call.name)


def _legacy_broadcast(call: NodeCall) -> Operand:
    """Return the second operand. Until opset 6 it may be aligned at an axis of the first: append dimensions of 1."""
    right = call.operand(1)
    if call.opset >= 7 or not call.integer("broadcast", 0) or "axis" not in call.attrs:
        return right
    ndims = len(call.shape(0))
    behind = ndims - normalize_axis(call.integer("axis"), ndims) - len(right.shape)
    dims = (*right.shape, *(1,) * behind)
    return (
        call.graph.reshape(right, dims, name=call.name_part("reshape"))
        if isinstance(right, Value)
        else call.folding.reshape(right, dims)
    )


def _by(function: np.ufunc) -> Callable[[Folding, Array, Array], Array]:
    return lambda folding, left, right: folding.combine(function, left, right)


OPERATORS: Final[Mapping[str, Operator]] = {
    "Relu": eltwise("relu"),
    "Tanh": eltwise("tanh"),
    "Sigmoid": eltwise("logistic"),
    "Exp": eltwise("exp"),
    "Log": eltwise("log"),
    "Sqrt": eltwise("sqrt"),
    "Abs": eltwise("abs"),
    "Softplus": eltwise("softplus"),
    "Mish": eltwise("mish"),
    "HardSwish": eltwise("hardswish"),
    "Elu": eltwise("elu", alpha=("alpha", 1.0)),
    "LeakyRelu": eltwise("relu", alpha=("alpha", 0.01)),
    "HardSigmoid": eltwise("hardsigmoid", alpha=("alpha", 0.2), beta=("beta", 0.5)),
    "Swish": eltwise("swish", alpha=("alpha", 1.0)),
    "Clip": clip,
    "PRelu": prelu,
    "Selu": selu,
    "Softsign": softsign,
    "Mean": mean,
    "Gelu": gelu,
    "Pow": power,
    "Neg": negative,
    "Reciprocal": reciprocal,
    "Add": arithmetic("add", _by(np.add)),
    "Sub": arithmetic("sub", _by(np.subtract)),
    "Mul": arithmetic("mul", _by(np.multiply)),
    "Div": arithmetic("div", Folding.divide),
    "Sum": variadic("add"),
    "Max": variadic("max"),
    "Min": variadic("min"),
}
