"""Derivatives of the functions of one variable on vectors, from the argument or from the result, as oneDNN defines them."""

from __future__ import annotations

import math
from typing import Any, Final

from .compiler import types
from .compiler.language import intrinsic
from .exponentials import emit_exp, emit_exp_below
from .functions import Function, bell_and_tail
from .power import emit_power
from .sines import emit_sine
from .vec import Builder, Value, apply, call, constant, fma, maximum, minimum, product_error, splat, vector

_DENSITY: Final = 1.0 / math.sqrt(2.0 * math.pi)
_TWICE_ROOT: Final = 2.0 * math.sqrt(2.0 / math.pi)
_CUBE: Final = 0.044715
_ERF_SLOPE: Final = 2.0 / math.sqrt(math.pi)


def _choose(b: Builder, condition: Value, yes: float | Value, no: float | Value) -> Value:
    picked = (constant(side) if isinstance(side, float) else side for side in (yes, no))
    return b.select(condition, *picked)


def _shares(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return logistic(x) and logistic(-x), both with full precision where they are small."""
    small = emit_exp_below(b, b.fneg(call(b, "llvm.fabs.v16f32", x)), denormal=True)
    whole = b.fadd(small, constant(1.0))
    large, small = b.fdiv(constant(1.0), whole), b.fdiv(small, whole)
    negative = b.fcmp_ordered("<", x, constant(0.0))
    return b.select(negative, small, large), b.select(negative, large, small)


def _relu(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return _choose(b, b.fcmp_ordered(">", x, constant(0.0)), 1.0, alpha)


def _tanh(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return 4 logistic(2 x) logistic(-2 x), which does not cancel where tanh is nearly 1."""
    share, other = _shares(b, b.fadd(x, x))
    return b.fmul(b.fmul(constant(4.0), share), other)


def _elu(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    power = emit_exp_below(b, minimum(b, constant(0.0), x), denormal=True)
    return _choose(b, b.fcmp_ordered(">", x, constant(0.0)), 1.0, b.fmul(alpha, power))


def _abs(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    zero = constant(0.0)
    return _choose(b, b.fcmp_ordered(">", x, zero), 1.0, _choose(b, b.fcmp_ordered("<", x, zero), -1.0, x))


def _logistic(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return b.fmul(*_shares(b, x))


def _clip(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return _choose(b, b.and_(b.fcmp_ordered(">", x, alpha), b.fcmp_ordered("<=", x, beta)), 1.0, 0.0)


def _clip_v2(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return _choose(b, b.and_(b.fcmp_ordered(">", x, alpha), b.fcmp_ordered("<", x, beta)), 1.0, 0.0)


def _gelu_erf(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return the normal distribution at x plus x times its density. Beyond 15 both are 0 or 1 in float32."""
    limit = constant(15.0)
    x = maximum(b, b.fneg(limit), minimum(b, limit, x))
    bell, tail = bell_and_tail(b, call(b, "llvm.fabs.v16f32", x))
    share = b.select(b.fcmp_ordered(">", x, constant(0.0)), b.fsub(constant(1.0), tail), tail)
    return fma(b, b.fmul(x, constant(_DENSITY)), bell, share)


def _gelu_tanh(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return s + s (1 - s) z' x with s = logistic(z), z = 2 sqrt(2 / pi) (x + 0.044715 x**3)."""
    limit = constant(16.0)
    x = maximum(b, b.fneg(limit), minimum(b, limit, x))
    square = b.fmul(x, x)
    z = b.fmul(x, fma(b, constant(_TWICE_ROOT * _CUBE), square, constant(_TWICE_ROOT)))
    share, other = _shares(b, z)
    steep = b.fmul(x, fma(b, constant(3.0 * _TWICE_ROOT * _CUBE), square, constant(_TWICE_ROOT)))
    return fma(b, b.fmul(share, other), steep, share)


def _hardswish(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    line = fma(b, alpha, x, beta)
    inner = fma(b, b.fadd(alpha, alpha), x, beta)
    inner = _choose(b, b.fcmp_ordered(">=", line, constant(1.0)), 1.0, inner)
    return _choose(b, b.fcmp_ordered("<=", line, constant(0.0)), 0.0, inner)


def _hardsigmoid(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    line = fma(b, alpha, x, beta)
    outside = b.or_(b.fcmp_ordered("<=", line, constant(0.0)), b.fcmp_ordered(">=", line, constant(1.0)))
    return _choose(b, outside, 0.0, alpha)


def _softplus(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return _shares(b, b.fmul(alpha, x))[0]


def _swish(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    z = b.fmul(alpha, x)
    share, other = _shares(b, z)
    return fma(b, b.fmul(share, z), other, share)


def _mish(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return (n (n + 2) + 4 x e (e + 1)) / (n + 2)**2 with e = exp(x) and n = e (e + 2); it is 1 from x = 20."""
    x = minimum(b, constant(20.0), x)
    e = emit_exp(b, x)
    n = b.fmul(e, b.fadd(e, constant(2.0)))
    whole = b.fadd(n, constant(2.0))
    other = b.fmul(b.fmul(b.fmul(constant(4.0), x), e), b.fadd(e, constant(1.0)))
    return b.fdiv(b.fadd(n, b.fdiv(other, whole)), whole)


def _pow(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return alpha beta x**(beta - 1); a power of 0 is constant, at x = 0 too."""
    steep = emit_power(b, x, b.fsub(beta, constant(1.0)), b.fmul(alpha, beta))
    return _choose(b, b.fcmp_unordered("==", beta, constant(0.0)), 0.0, steep)


def _erf(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return 2 / sqrt(pi) exp(-x * x), with the rounding error of the product added as a factor; beyond 15 it is 0."""
    limit = constant(15.0)
    x = maximum(b, b.fneg(limit), minimum(b, limit, x))
    square = b.fmul(x, x)
    bell = b.fmul(constant(_ERF_SLOPE), emit_exp_below(b, b.fneg(square), denormal=True))
    return fma(b, bell, b.fneg(product_error(b, x, x, square)), bell)


def _softsign(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    share = b.fdiv(constant(1.0), b.fadd(call(b, "llvm.fabs.v16f32", x), constant(1.0)))
    return b.fmul(share, share)


def _arc_sine(b: Builder, x: Value, sign: float) -> Value:
    one = constant(1.0)
    return b.fdiv(constant(sign), apply(b, "sqrt", b.fmul(b.fsub(one, x), b.fadd(one, x))))


def _tan(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    cosine = emit_sine(b, x, 1)
    return b.fdiv(constant(1.0), b.fmul(cosine, cosine))


#: Of the argument.
SLOPES: Final[dict[str, Function]] = {
    "relu": _relu,
    "tanh": _tanh,
    "elu": _elu,
    "square": lambda b, x, alpha, beta: b.fadd(x, x),
    "abs": _abs,
    "sqrt": lambda b, x, alpha, beta: b.fdiv(constant(0.5), call(b, "llvm.sqrt.v16f32", x)),
    "linear": lambda b, x, alpha, beta: alpha,
    "logistic": _logistic,
    "exp": lambda b, x, alpha, beta: emit_exp(b, x),
    "log": lambda b, x, alpha, beta: b.fdiv(constant(1.0), x),
    "clip": _clip,
    "clip_v2": _clip_v2,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "hardswish": _hardswish,
    "hardsigmoid": _hardsigmoid,
    "softplus": _softplus,
    "swish": _swish,
    "mish": _mish,
    "pow": _pow,
    "erf": _erf,
    "sin": lambda b, x, alpha, beta: emit_sine(b, x, 1),
    "cos": lambda b, x, alpha, beta: b.fneg(emit_sine(b, x, 0)),
    "softsign": _softsign,
    "tan": _tan,
    "atan": lambda b, x, alpha, beta: b.fdiv(constant(1.0), fma(b, x, x, constant(1.0))),
    "asin": lambda b, x, alpha, beta: _arc_sine(b, x, 1.0),
    "acos": lambda b, x, alpha, beta: _arc_sine(b, x, -1.0),
    "threshold": lambda b, x, alpha, beta: _choose(b, b.fcmp_ordered(">", x, alpha), 1.0, 0.0),
}
#: Of the result, for the functions that allow it.
SLOPES_OF_RESULTS: Final[dict[str, Function]] = {
    "relu": _relu,
    "tanh": lambda b, y, alpha, beta: b.fmul(b.fsub(constant(1.0), y), b.fadd(constant(1.0), y)),
    "elu": lambda b, y, alpha, beta: _choose(b, b.fcmp_ordered(">", y, constant(0.0)), 1.0, b.fadd(y, alpha)),
    "sqrt": lambda b, y, alpha, beta: b.fdiv(constant(0.5), y),
    "logistic": lambda b, y, alpha, beta: b.fmul(y, b.fsub(constant(1.0), y)),
    "exp": lambda b, y, alpha, beta: y,
    "clip_v2": _clip_v2,
}


def slope(algorithm: str, from_result: bool) -> Any:
    """Return an intrinsic f(vector, float32 alpha, float32 beta) -> vector of slopes."""
    emit = (SLOPES_OF_RESULTS if from_result else SLOPES)[algorithm]

    def typed(_: Any, x: Any, alpha: Any, beta: Any) -> Any:
        def code(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return emit(b, a[0], splat(b, a[1]), splat(b, a[2]))

        return vector(vector, types.float32, types.float32), code

    return intrinsic(typed)
