"""Operators that ONNX Runtime's optimiser makes of several: activations with a bias, products and convolutions with more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...call import NodeCall, Operator
from ...tensors import Operand
from .. import products, windows

#: Name of an activation -> algorithm, names of its parameters and what they are unless given.
_ACTIVATIONS: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    "Relu": ("relu", ()),
    "Sigmoid": ("logistic", ()),
    "Tanh": ("tanh", ()),
    "LeakyRelu": ("relu", (0.01,)),
    "Clip": ("clip", (-3.4028234663852886e38, 3.4028234663852886e38)),
    "HardSigmoid": ("hardsigmoid", (0.2, 0.5)),
}


def activate(call: NodeCall, source: Operand, parameters: Sequence[float]) -> Operand:
    """Apply the function that the attribute ``activation`` names, with its parameters."""
    name = call.text("activation", "")
    if not name:
        return source
    if name not in _ACTIVATIONS:
        raise call.unsupported(f"activation {name!r} is not supported; these are: {', '.join(_ACTIVATIONS)}")
    algorithm, usual = _ACTIVATIONS[name]
    return call.math.eltwise(source, algorithm, *(*parameters, *usual[len(parameters) :])[: len(usual)])


def convolution(call: NodeCall) -> Operand:
    """Convolve, add Z, and apply an activation."""
    convolved = windows.OPERATORS["Conv"](call.with_operands(*call.operands[:3]))
    result = convolved[0] if isinstance(convolved, tuple) else convolved
    if result is None:
        raise call.malformed("it has no result")
    if call.has(3):
        result = call.math.binary(result, call.tensor(3), "add")
    return activate(call, result, call.numbers("activation_params") if "activation_params" in call.attrs else ())


def gemm(call: NodeCall) -> Operand:
    """Compute alpha * op(A) * op(B) + beta * C, and apply an activation."""
    names = ("activation_alpha", "activation_beta")
    given = [call.number(name) for name in names if name in call.attrs]
    return activate(call, products.gemm(call), given)


def matmul(call: NodeCall) -> Operand:
    """Multiply as NumPy's matmul does, times alpha; either operand may have its dimensions turned first."""
    m, operands = call.math, list[Operand]()
    for index, side in ((0, "A"), (1, "B")):
        operand = call.real(index)
        axes = list(range(len(operand.shape)))
        if call.integer(f"transBatch{side}", 0) and len(axes) > 2:
            # (D0, D1, ..., Dn, M) has its batch dimensions D1 ... Dn: D0 becomes the row dimension.
            axes = [*axes[1:-1], axes[0], axes[-1]]
        if call.integer(f"trans{side}", 0) and len(axes) > 1:
            axes = [*axes[:-2], axes[-1], axes[-2]]
        operands.append(m.transpose(operand, axes))
    alpha = call.number("alpha", 1.0)
    result = m.matmul(operands[0], operands[1])
    return result if alpha == 1.0 else m.eltwise(result, "linear", alpha)


def bias_gelu(algorithm: str) -> Operator:
    """Return the operator that adds a bias, if there is one, and computes GELU."""

    def operator(call: NodeCall) -> Operand:
        source = call.real(0)
        if call.has(1):
            source = call.math.binary(source, call.real(1), "add")
        return call.math.eltwise(source, algorithm)

    return operator


def quick_gelu(call: NodeCall) -> Operand:
    """Multiply by the logistic function of alpha times the source."""
    return call.math.eltwise(call.real(0), "swish", call.number("alpha", 1.702))


OPERATORS: Final[Mapping[str, Operator]] = {
    "FusedConv": convolution,
    "FusedGemm": gemm,
    "FusedMatMul": matmul,
    "TransposeMatMul": matmul,
    "Gelu": bias_gelu("gelu_erf"),
    "BiasGelu": bias_gelu("gelu_erf"),
    "FastGelu": bias_gelu("gelu_tanh"),
    "QuickGelu": quick_gelu,
}
