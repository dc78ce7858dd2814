"""Cases of eltwise, binary and sum."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from poolrt.workers.desc import Arg, Binary, Eltwise, MemoryDesc, PrimitiveAttr, Sum, multiple_src
from poolrt.workers.desc.attributes import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS
from poolrt.workers.implementations.inference import VECTOR_ALGORITHMS

from .case import EPSILON, Array, Case, chains, integers, normals, plain, post_op_args

#: algorithm -> (alpha, beta) pairs worth testing
_ELTWISE_PARAMETERS: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    "relu": ((0.0, 0.0), (0.25, 0.0)),
    "elu": ((1.0, 0.0), (0.3, 0.0)),
    "linear": ((1.5, -0.75),),
    "clip": ((-1.0, 6.0),),
    "clip_v2": ((-1.0, 6.0),),
    "pow": ((2.0, 3.0), (-1.0, 0.5), (1.0, -2.0), (2.0, 1.7), (3.0, 0.0)),
    "hardswish": ((1 / 6, 0.5),),
    "hardsigmoid": ((0.2, 0.5),),
    "softplus": ((1.0, 0.0), (-2.0, 0.0)),
    "swish": ((1.0, 0.0), (1.702, 0.0)),
    "threshold": ((0.0, 0.0), (-1.0, 0.0)),
}


#: algorithm -> (relative, absolute) error allowed where it is not 4 half units in the last place (cf. benchdnn's 4e-5).
_ELTWISE_TOLERANCE: Final[dict[str, tuple[float, float]]] = {
    "linear": (4 * EPSILON, 1e-7),
    "gelu_erf": (4e-6, 4e-11),
    "gelu_tanh": (2e-5, 0.0),  # the exponent, up to 88, has roundings without FMA; benchdnn allows 4e-5
    "pow": (1e-6, 0.0),
    "tanh": (1e-6, 0.0),
    "elu": (1e-6, 0.0),
    "logistic": (1e-6, 0.0),
    "softplus": (2e-6, 0.0),
    "swish": (8e-6, 0.0),  # alpha * x is rounded before it becomes an exponent
    "mish": (4e-6, 0.0),
    "hardswish": (1e-6, 1e-6),
    "hardsigmoid": (1e-6, 1e-7),
    "exp": (4e-7, 0.0),
    "log": (1e-6, 0.0),
    "erf": (1e-6, 0.0),
    "sin": (1e-6, 0.0),
    "cos": (1e-6, 0.0),
    "tan": (1e-6, 0.0),
    "atan": (1e-6, 0.0),
    "asin": (1e-6, 0.0),
    "acos": (1e-6, 0.0),
}

_BINARY = tuple(filter(VECTOR_ALGORITHMS.__contains__, BINARY_ALGORITHMS))


def eltwise_values(algorithm: str) -> Array:
    """Return about 3500 arguments worth testing: dense around 0, the whole finite range, special values."""
    wide = np.exp2(np.linspace(-140, 127.9, 600))
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 88.72, -87.33, 88.8, -104.1, 3.4e38, -3.4e38, 1e-40, np.inf, -np.inf, np.nan]
    )
    around = np.concatenate([np.linspace(-20, 20, 1201), np.linspace(-100, 100, 401), np.linspace(-1, 1, 401)])
    values = np.concatenate([special, around, wide, -wide, 1 + np.linspace(-1e-3, 1e-3, 201)])
    with np.errstate(over="ignore"):
        return np.asarray(np.abs(values) if algorithm in ("sqrt", "log") else values, np.float32)


def eltwise_cases() -> list[Case]:
    found = []
    for algorithm in filter(VECTOR_ALGORITHMS.__contains__, ELTWISE_ALGORITHMS):
        for alpha, beta in _ELTWISE_PARAMETERS.get(algorithm, ((0.0, 0.0),)):
            values = eltwise_values(algorithm)
            md = plain(values.size)
            name = f"{algorithm} alpha {alpha:g} beta {beta:g}"
            rtol, atol = _ELTWISE_TOLERANCE.get(algorithm, (4 * EPSILON, 0.0))
            op = Eltwise(md, md, algorithm, alpha, beta)
            # Results below the smallest normal number may be flushed to zero.
            found.append(Case(name, op, {Arg.SRC: values}, rtol=rtol, atol=max(atol, 1.2e-38)))
    for algorithm, dims in itertools.product(
        ("relu", "exp", "logistic"), ((2, 19, 5, 7), (1, 16, 3, 3), (3, 33, 4), (1,), (0, 4, 2, 2))
    ):
        op = Eltwise(plain(*dims), plain(*dims), algorithm)
        found.append(Case(f"{algorithm} {dims}", op, {Arg.SRC: normals(dims, algorithm)}, rtol=1e-6))
    return found


def binary_cases() -> list[Case]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((2, 19, 5, 7), (2, 19, 5, 7)),
        ((1, 32, 6, 6), (1, 32, 6, 6)),
        ((2, 19, 5, 7), (1, 19, 1, 1)),
        ((1, 19, 1, 1), (2, 19, 5, 7)),
        ((2, 32, 5, 5), (1, 1, 1, 1)),
        ((1, 1, 1, 1), (2, 17, 3, 3)),
        ((4, 5, 33), (1, 1, 33)),
        ((4, 5, 33), (4, 5, 1)),
        ((4, 1, 33), (1, 5, 1)),
        ((3, 1, 5, 1, 2), (1, 4, 1, 6, 2)),
        ((2, 3, 4, 5, 6), (2, 1, 4, 1, 6)),
        ((100,), (1,)),
        ((1,), (1,)),
        ((), ()),
        ((0, 3, 2), (1, 3, 2)),
    ]
    found = []
    for index, (left, right) in enumerate(shapes):
        # Every algorithm on the first two shapes, two of them on each further one.
        for algorithm in _BINARY if index < 2 else ("add", _BINARY[1 + index % 5]):
            out = tuple(a if b == 1 else b for a, b in zip(left, right, strict=True))
            op = Binary(plain(*left), plain(*right), plain(*out), algorithm)
            first, second = normals(left, index, "left"), normals(right, index)
            if algorithm == "div":
                second = integers(right, index, low=1, high=9)
            rtol = 2 * EPSILON
            if algorithm == "pow":
                first, rtol = np.abs(first), _ELTWISE_TOLERANCE["pow"][0]
            args: dict[int, Array] = {Arg.SRC: first, Arg.SRC_1: second}
            steps = chains(op.dst)[index % 4][1] if out and algorithm == "add" else ()
            name = f"{algorithm} {left} {right}"
            extra = post_op_args(steps)
            found.append(
                Case(name, op, {**args, **extra}, PrimitiveAttr(steps), rtol=rtol, atol=2e-6 if steps else 1e-30)
            )
    return [*found, _powers()]


def _powers() -> Case:
    """Return the powers of numbers of every size, signs and special values, by exponents of every kind."""
    base = eltwise_values("pow")
    special = [0, 0.5, 1, 2, 3, 4, 7, 2**24 - 1, 2**24, 1e9, 1e30, 3e38, 1e-40, np.inf, 1 / 3, 20.25, 100.5]
    exponents = np.array([*special, *(-number for number in special), np.nan], np.float32)
    md = MemoryDesc((exponents.size, base.size), "f32")
    rows = MemoryDesc((1, base.size), "f32"), MemoryDesc((exponents.size, 1), "f32")
    args: dict[int, Array] = {Arg.SRC: base[None], Arg.SRC_1: exponents[:, None]}
    # Results below the smallest normal number may be flushed to zero.
    return Case(
        "pow of special values", Binary(*rows, md, "pow"), args, rtol=_ELTWISE_TOLERANCE["pow"][0], atol=1.2e-38
    )


def sum_cases() -> list[Case]:
    found = []
    shapes = ((2, 19, 5, 7), (1, 64, 8, 8), (3, 33), (1000,), (1, 16, 1, 1), (0, 5))
    for (index, dims), count in itertools.product(enumerate(shapes), (1, 2, 3, 5)):
        op = Sum((plain(*dims),) * count, plain(*dims))
        args: dict[int, Array] = {multiple_src(i): integers(dims, "sum", i) for i in range(count)}
        steps = chains(op.dst)[(index + count) % 4][1]
        found.append(Case(f"{count} x {dims}", op, {**args, **post_op_args(steps)}, PrimitiveAttr(steps)))
    return found
