"""Functions of one and two variables on vectors, as oneDNN defines them, for eltwise, binary and post-ops.

NaN arguments give NaN (except in threshold, which gives 0); oneDNN's maximum and minimum return the second operand. The
transcendental functions are polynomials of Cephes' form with relative errors of a few units in the last place, near 0 and in
their tails too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from .arc_sine import emit_arc_cosine, emit_arc_sine
from .arc_tangent import emit_arc_tangent
from .compiler import types
from .compiler.language import intrinsic
from .elements import emit_load, emit_load_tail
from .exponentials import emit_bell, emit_exp, emit_exp_below, emit_expm1, emit_log
from .power import emit_power
from .sines import each, emit_sine, emit_tangent
from .vec import (
    F32,
    FUSES,
    I32,
    VD,
    Builder,
    Value,
    apply,
    constant,
    fma,
    is_negative,
    isa_of,
    larger,
    maximum,
    minimum,
    product_error,
    smaller,
    splat,
)

Step = tuple[Any, ...]
#: Coefficients of polynomials in s, the highest first, whose quotient is exp(s**2 / 2) erfc(s / sqrt2) / 2 for s up to 15 with
#: a relative error of 1.2e-8. All are positive, so no sum cancels.
_TAIL_NUMERATOR: Final = (4.1238796e-3, 4.06841151e-2, 1.83385909e-1, 4.38498110e-1, 0.5)
_TAIL_DENOMINATOR: Final = (1.0336915e-2, 1.01986334e-1, 4.6986869e-1, 1.20312881, 1.67488122, 1.0)


def _relu(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    # Not alpha * x if alpha is 0: the product with minus infinity would be NaN.
    negative = b.fmul(alpha, x)
    zero = constant(0.0, x.type)
    leaks = b.fcmp_unordered("!=", alpha, zero)
    not_a_number = b.fcmp_unordered("uno", x, x)
    return b.select(b.fcmp_ordered(">", x, zero), x, b.select(b.or_(leaks, not_a_number), negative, zero))


def _horner(b: Builder, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Return a polynomial, the highest coefficient first."""
    p: Value = constant(coefficients[0], x.type)
    for c in coefficients[1:]:
        p = fma(b, p, x, constant(c, x.type))
    return p


def _tanh(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return tanh(x) to 4e-7 as a quotient of polynomials (Eigen's ptanh), exact near 0; 1 from about 9 on.

    In float64 it is -e / (e + 2) with e = exp(-2 |x|) - 1.
    """
    if x.type == VD:
        e = emit_expm1(b, b.fmul(constant(-2.0, VD), apply(b, "fabs", x)))
        return apply(b, "copysign", b.fdiv(e, b.fadd(e, constant(2.0, VD))), x)
    x = maximum(b, constant(-8.6643, x.type), minimum(b, constant(8.6643, x.type), x))
    square = b.fmul(x, x)
    p = _horner(b, square, (1.394553628e-8, 2.102733560e-5, 3.520756727e-3, 1.340216100e-1))
    q = _horner(b, square, (8.015776984e-7, 3.326951409e-4, 2.597254514e-2, 4.673548340e-1, 1.0))
    found = b.fdiv(fma(b, p, b.fmul(square, x), x), q)
    return maximum(b, constant(-1.0, x.type), minimum(b, constant(1.0, x.type), found))


def _elu(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    negative = b.fmul(alpha, emit_expm1(b, minimum(b, constant(0.0, x.type), x)))
    # Zeros keep their signs.
    return b.select(b.fcmp_ordered(">=", x, constant(0.0, x.type)), x, negative)


def _logistic(b: Builder, x: Value, alpha: Value, beta: Value, denormal: bool = False) -> Value:
    """Return exp(x) / (1 + exp(x)), which keeps its precision if the result is small; it is 1 from x = 30 on in float32.

    A result below the normal range may be 0 unless it is to be ``denormal``: the factor of another number.
    """
    if x.type != VD:
        e = emit_exp_below(b, minimum(b, constant(30.0), x), denormal=denormal, short=True)
        return b.fdiv(e, b.fadd(e, constant(1.0)))
    small = emit_exp(b, b.fneg(apply(b, "fabs", x)))
    above = b.select(is_negative(b, x), small, constant(1.0, VD))
    return b.fdiv(above, b.fadd(small, constant(1.0, VD)))


def _softplus(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return ln(1 + exp(z)) / alpha, z = alpha x: (max(z, 0) + ln(1 + u)) / alpha with u = exp(-|z|).

    The logarithm is corrected for the rounding of 1 + u; max(z, 0) / alpha is x or 0, which cannot overflow.
    """
    z = b.fmul(alpha, x)
    u = emit_exp_below(b, b.fneg(apply(b, "fabs", z)), denormal=True)
    rounded = b.fadd(u, constant(1.0, x.type))
    lost = b.fsub(u, b.fsub(rounded, constant(1.0, x.type)))
    curve = b.fadd(emit_log(b, rounded), b.fdiv(lost, rounded))
    line = b.select(b.fcmp_ordered(">", z, constant(0.0, x.type)), x, constant(0.0, x.type))
    return b.fadd(line, b.fdiv(curve, alpha))


def _clip(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return minimum(b, beta, maximum(b, alpha, x))


def bell_and_tail(b: Builder, size: Value) -> tuple[Value, Value]:
    """Return exp(-size**2 / 2) and erfc(size / sqrt2) / 2 of float32 from 0 to 15."""
    bell = emit_bell(b, size)
    above, below = (_horner(b, size, terms) for terms in (_TAIL_NUMERATOR, _TAIL_DENOMINATOR))
    return bell, b.fmul(bell, b.fdiv(above, below))


def _gelu_erf(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return x/2 erfc(-x/sqrt2), erfc of a positive number as a bell and a quotient of polynomials.

    Beyond 15 the result is 0 in float32. In float64 erfc is the C library's.
    """
    if x.type == VD:
        tail = each(b, "erfc", b.fmul(x, constant(-math.sqrt(0.5), VD)))
        return b.fmul(b.fmul(constant(0.5, VD), x), tail)
    _, tail = bell_and_tail(b, minimum(b, constant(15.0), apply(b, "fabs", x)))
    return b.fmul(x, b.select(is_negative(b, x), tail, b.fsub(constant(1.0), tail)))


def _gelu_tanh(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return x logistic(z), z = 2 sqrt(2 / pi) (x + 0.044715 x**3), through exp(z).

    The rounding errors of x * x and z are added as a factor. Beyond 16 the result is x or 0 in float32.
    """
    if x.type == VD:
        z = b.fmul(constant(2.0 * math.sqrt(2.0 / math.pi), VD), x)
        cubic = b.fmul(b.fmul(constant(0.044715, VD), x), x)
        return b.fmul(x, _logistic(b, b.fmul(z, b.fadd(cubic, constant(1.0, VD))), alpha, beta))
    # Of a large number, exp(z) / (1 + exp(z)) is 1.
    size = maximum(b, constant(-16.0), minimum(b, constant(6.0), x))
    square = b.fmul(size, size)
    cubic = constant(2.0 * math.sqrt(2.0 / math.pi) * 0.044715)
    inner = fma(b, cubic, square, constant(2.0 * math.sqrt(2.0 / math.pi)))
    z = b.fmul(size, inner)
    lost = product_error(b, size, inner, z)
    lost = fma(b, b.fmul(size, cubic), product_error(b, size, size, square), lost)
    if isa_of(b) not in FUSES:  # without FMA, the product in the inner sum is rounded, too
        lost = fma(b, size, product_error(b, cubic, square, b.fmul(cubic, square)), lost)
    e = emit_exp_below(b, z, denormal=True, short=True)
    e = fma(b, e, lost, e)
    return b.fmul(x, b.fdiv(e, b.fadd(e, constant(1.0))))


def _line(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return alpha x + beta; in float64 it is not fused, so that whole numbers are rounded as the reference rounds them."""
    return b.fadd(b.fmul(alpha, x), beta) if x.type == VD else fma(b, alpha, x, beta)


def _hardsigmoid(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    line = _line(b, x, alpha, beta)
    return minimum(b, constant(1.0, x.type), maximum(b, constant(0.0, x.type), line))


def _mish(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return x tanh(ln(1 + e)) = x e (e + 2) / (e (e + 2) + 2) with e = exp(x); the quotient is 1 from x = 20."""
    e = emit_exp_below(b, minimum(b, constant(20.0, x.type), x), denormal=True)
    product = b.fmul(e, b.fadd(e, constant(2.0, x.type)))
    return b.fmul(x, b.fdiv(product, b.fadd(product, constant(2.0, x.type))))


def _pow(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return alpha x**beta. Cubes of float32, which networks have, are products."""
    if x.type == VD:
        return emit_power(b, x, beta, alpha)
    power, factor = (b.extract_element(each, I32(0)) for each in (beta, alpha))
    is_cube = b.and_(b.fcmp_ordered("==", power, F32(3.0)), b.fcmp_ordered("==", factor, F32(1.0)))
    with b.if_else(is_cube) as (of_cube, of_others):
        with of_cube:
            cube, first = b.fmul(b.fmul(x, x), x), b.block
        with of_others:
            other, second = emit_power(b, x, beta, alpha), b.block
    found = b.phi(x.type)
    found.add_incoming(cube, first)
    found.add_incoming(other, second)
    return found


def _erf(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    """Return the error function to 2 ulp: a polynomial near 0, else 1 less an exponential; from 4 on it is 1 in float32.

    In float64 it is the C library's.
    """
    if x.type == VD:
        return each(b, "erf", x)
    size = minimum(b, constant(4.0), apply(b, "fabs", x))
    square = b.fmul(size, size)
    far = fma(b, constant(-1.72853470e-5), size, constant(3.83197126e-4))
    far = fma(b, far, square, fma(b, constant(-3.88396438e-3), size, constant(2.42546219e-2)))
    for c in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        far = fma(b, far, size, constant(c))
    far = b.fsub(constant(1.0), emit_exp_below(b, fma(b, far, size, b.fneg(size)), limited=False, short=True))
    near = constant(-5.96761703e-4)
    for c in (4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1):
        near = fma(b, near, square, constant(c))
    near = fma(b, near, size, size)
    return apply(b, "copysign", b.select(b.fcmp_ordered(">", size, constant(475 / 512)), far, near), x)


def _softsign(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return b.fdiv(x, b.fadd(apply(b, "fabs", x), constant(1.0, x.type)))


def _sign(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    zero, one, minus = (constant(number, x.type) for number in (0.0, 1.0, -1.0))
    return b.select(b.fcmp_ordered(">", x, zero), one, b.select(b.fcmp_ordered("<", x, zero), minus, x))


def _threshold(b: Builder, x: Value, alpha: Value, beta: Value) -> Value:
    return b.select(b.fcmp_ordered(">", x, alpha), x, constant(0.0, x.type))


Function = Callable[[Builder, Value, Value, Value], Value]
ELTWISE: Final[dict[str, Function]] = {
    "relu": _relu,
    "tanh": _tanh,
    "elu": _elu,
    "square": lambda b, x, alpha, beta: b.fmul(x, x),
    "abs": lambda b, x, alpha, beta: apply(b, "fabs", x),
    "sqrt": lambda b, x, alpha, beta: apply(b, "sqrt", x),
    "linear": _line,
    "logistic": _logistic,
    "exp": lambda b, x, alpha, beta: emit_exp(b, x),
    "log": lambda b, x, alpha, beta: emit_log(b, x),
    "clip": _clip,
    "clip_v2": _clip,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "hardswish": lambda b, x, alpha, beta: b.fmul(x, _hardsigmoid(b, x, alpha, beta)),
    "hardsigmoid": _hardsigmoid,
    "softplus": _softplus,
    "swish": lambda b, x, alpha, beta: b.fmul(x, _logistic(b, b.fmul(alpha, x), alpha, beta, True)),
    "mish": _mish,
    "pow": _pow,
    "round": lambda b, x, alpha, beta: apply(b, "rint", x),
    "floor": lambda b, x, alpha, beta: apply(b, "floor", x),
    "ceil": lambda b, x, alpha, beta: apply(b, "ceil", x),
    "trunc": lambda b, x, alpha, beta: apply(b, "trunc", x),
    "erf": _erf,
    "sin": lambda b, x, alpha, beta: emit_sine(b, x, 0),
    "cos": lambda b, x, alpha, beta: emit_sine(b, x, 1),
    "softsign": _softsign,
    "tan": lambda b, x, alpha, beta: emit_tangent(b, x),
    "atan": lambda b, x, alpha, beta: emit_arc_tangent(b, x),
    "asin": lambda b, x, alpha, beta: emit_arc_sine(b, x),
    "acos": lambda b, x, alpha, beta: emit_arc_cosine(b, x),
    "sign": _sign,
    "threshold": _threshold,
}
BINARY: Final[dict[str, Callable[[Builder, Value, Value], Value]]] = {
    "add": lambda b, x, y: b.fadd(x, y),
    "sub": lambda b, x, y: b.fsub(x, y),
    "mul": lambda b, x, y: b.fmul(x, y),
    "div": lambda b, x, y: b.fdiv(x, y),
    "max": larger,
    "min": smaller,
    "pow": lambda b, x, y: emit_power(b, x, y, constant(1.0, x.type)),
    "prelu": lambda b, x, y: b.select(b.fcmp_ordered(">", x, constant(0.0, x.type)), x, b.fmul(x, y)),
}


def emit_chain(b: Builder, steps: tuple[Step, ...], value: Value, other: Value | None) -> Value:
    """Return a vector after post-ops: ("eltwise", algorithm, alpha, beta) or ("binary", algorithm) with ``other``."""
    for kind, algorithm, *parameters in steps:
        if kind == "eltwise":
            alpha, beta = (constant(parameter, value.type) for parameter in parameters)
            value = ELTWISE[algorithm](b, value, alpha, beta)
        elif other is None:
            raise ValueError("a binary post-op without its second source")
        else:
            value = BINARY[algorithm](b, value, other)
    return value


def eltwise(algorithm: str) -> Any:
    """Return an intrinsic f(vector x, alpha, beta) -> vector; alpha and beta are scalars of the lanes' type."""
    emit = ELTWISE[algorithm]

    def typed(_: Any, x: Any, alpha: Any, beta: Any) -> Any:
        def code(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return emit(b, a[0], splat(b, a[1]), splat(b, a[2]))

        return x(x, x.scalar, x.scalar), code

    return intrinsic(typed)


def binary(algorithm: str) -> Any:
    """Return an intrinsic f(vector x, vector y) -> vector."""
    emit = BINARY[algorithm]

    def typed(_: Any, x: Any, y: Any) -> Any:
        return x(x, x), lambda context, b, sig, a: emit(b, a[0], a[1])

    return intrinsic(typed)


def post_ops(steps: tuple[Step, ...], dtype: str = "f32") -> Any:
    """Return an intrinsic f(vector value, int64 address of the binary step's second source) -> vector.

    The address, of elements of a data type, is read only if the chain has a binary step.
    """
    reads = any(kind == "binary" for kind, *_ in steps)

    def typed(_: Any, value: Any, address: Any) -> Any:
        def code(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return emit_chain(b, steps, a[0], emit_load(b, a[1], dtype) if reads else None)

        return value(value, types.int64), code

    return intrinsic(typed)


def post_ops_part(steps: tuple[Step, ...], dtype: str = "f32") -> Any:
    """Return the intrinsic f(value, address, count) that reads only ``count`` elements if these are of eight bytes."""
    reads = any(kind == "binary" for kind, *_ in steps)

    def typed(_: Any, value: Any, address: Any, count: Any) -> Any:
        def code(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            return emit_chain(b, steps, a[0], emit_load_tail(b, a[1], a[2], dtype) if reads else None)

        return value(value, types.int64, types.int64), code

    return intrinsic(typed)
