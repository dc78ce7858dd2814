"""Cases of batch normalisation, LRN and softmax."""

from __future__ import annotations

import itertools

import numpy as np

from poolrt.workers.desc import Arg, BatchNormalization, Lrn, PrimitiveAttr, Softmax

from .case import EPSILON, RELU, Array, Case, normals, plain


def batch_normalization_cases() -> list[Case]:
    found = []
    shapes = (
        (2, 19, 5, 7),
        (1, 64, 9, 9),
        (3, 33),
        (131, 40),
        (2, 5, 31),
        (1, 17, 3, 4, 5),
        (1, 16, 1, 1),
        (0, 8, 2, 2),
    )
    for (index, dims), relu in itertools.product(enumerate(shapes), (False, True)):
        c = dims[1]
        op = BatchNormalization(plain(*dims), plain(*dims), 1e-5 if index % 2 else 1e-3)
        args: dict[int, Array] = {
            Arg.SRC: normals(dims, "bn", scale=2.0),
            Arg.MEAN: normals((c,), "mean"),
            Arg.VARIANCE: np.abs(normals((c,), "variance")) + np.float32(0.1),
            Arg.SCALE: normals((c,), "scale"),
            Arg.SHIFT: normals((c,), "shift"),
        }
        steps = (RELU,) if relu else ()
        found.append(Case(f"{dims}{' +relu' * relu}", op, args, PrimitiveAttr(steps), rtol=1e-6, atol=4e-6))
    return found


def lrn_cases() -> list[Case]:
    found = []
    shapes = ((1, 32, 7, 7), (2, 19, 5, 3), (1, 3, 9, 11), (1, 64, 4), (2, 40), (1, 16, 1, 1), (0, 5, 2, 2))
    parameters = (
        (5, 1e-4, 0.75, 1.0),
        (5, 2.0, 0.75, 2.0),
        (3, 0.7, 0.5, 1.5),
        (4, 1.0, 0.3, 1.0),
        (1, 1.0, 1.0, 1.0),
        (9, 1.0, 2.5, 0.5),
    )
    for dims, (size, alpha, beta, k) in itertools.product(shapes, parameters):
        op = Lrn(plain(*dims), plain(*dims), size, alpha, beta, k)
        name = f"{dims} size {size} alpha {alpha:g} beta {beta:g} k {k:g}"
        found.append(Case(name, op, {Arg.SRC: normals(dims, "lrn", scale=3.0)}, rtol=4e-6))
    return found


def softmax_cases() -> list[Case]:
    found = []
    problems = [
        ((1, 1000), 1), ((5, 17), 1), ((3, 16), 1), ((4, 1), 1), ((7, 15), 0), ((2, 19, 5, 7), 1), ((2, 19, 5, 7), 3),
        ((2, 19, 5, 7), 2), ((2, 19, 5, 7), 0), ((1, 64, 4, 4), 1), ((2, 33, 6), 2),
        ((100000,), 0), ((1,), 0), ((0, 5), 1), ((5, 0), 1),
    ]  # fmt: skip
    for (dims, axis), algorithm in itertools.product(problems, ("accurate", "log")):
        values = normals(dims, "softmax", scale=6.0)
        found.append(_softmax(f"{algorithm} {dims} axis {axis}", values, axis, algorithm))
    for algorithm, shift in itertools.product(("accurate", "log"), (3e4, -3e4)):
        values = normals((3, 50), "shifted", scale=40.0) + np.float32(shift)
        found.append(_softmax(f"{algorithm} around {shift:g}", values, 1, algorithm))
    infinite = normals((4, 21), "infinite")
    infinite[0, 3], infinite[1, 5], infinite[2, :], infinite[3, 20] = -np.inf, np.nan, 1e38, np.inf
    return [*found, _softmax("accurate with infinities", infinite, 1, "accurate")]


def _softmax(name: str, values: Array, axis: int, algorithm: str) -> Case:
    """Return a case; its error allows for the rounding of x - max, which becomes an exponent, and for 16 half units."""
    finite = values[np.isfinite(values)]
    spread = float(np.max(finite) - np.min(finite)) if finite.size and finite.size == values.size else 100.0
    relative = (16 + spread) * EPSILON
    op = Softmax(plain(*values.shape), plain(*values.shape), axis, algorithm)
    log = algorithm == "log"
    return Case(name, op, {Arg.SRC: values}, rtol=2e-6 if log else relative, atol=2e-6 if log else 1.2e-38)
