"""Functions element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from poolrt import Graph
from poolrt.graph.values import Value

from .problem import Array, Problem, normals


def eltwises() -> Iterator[Problem]:
    """Yield functions of one variable, on the hidden layer of BERT-base and on activations of MobileNet."""
    for dims in ((128, 3072), (197, 3072), (1, 64, 112, 112)):
        for name, node, alpha, beta, how in (
            ("gelu_erf", "Gelu", 0.0, 0.0, {}),
            ("relu", "Relu", 0.0, 0.0, {}),
            ("tanh", "Tanh", 0.0, 0.0, {}),
            ("exp", "Exp", 0.0, 0.0, {}),
            ("logistic", "Sigmoid", 0.0, 0.0, {}),
            ("gelu_tanh", "Gelu", 0.0, 0.0, {"approximate": "tanh"}),
            ("mish", "Mish", 0.0, 0.0, {}),
            ("hardswish", "HardSwish", 1 / 6, 0.5, {}),
        ):
            yield Problem("eltwise", name, dims, eltwise_of(name, alpha, beta), node, (), dict(how))
    for dims in ((1, 64, 56, 56), (1, 128, 28, 28), (1, 3072, 16, 1)):
        slope = normals(dims[1], 1, 1)
        yield Problem("prelu", "prelu", dims, lambda g, x, slope=slope: g.prelu(x, slope[None]), "PRelu", (slope,))


def eltwise_of(name: str, alpha: float, beta: float) -> Callable[[Graph, Value], Value]:
    return lambda g, x: g.eltwise(x, name, alpha, beta)


def binaries() -> Iterator[Problem]:
    """Yield sums of two inputs of one shape, sums and products with a row, a channel and a scalar, and powers."""
    for dims in ((128, 768), (1, 256, 56, 56), (1, 1024)):
        yield Problem("binary", "add", dims, lambda g, x, y: g.binary(x, y, "add"), "Add", inputs=2)
    for name, node, dims, shape in (
        ("add", "Add", (128, 768), (768,)), ("add", "Add", (1, 256, 56, 56), (256, 1, 1)),
        ("mul", "Mul", (1, 32, 112, 112), (1, 32, 1, 1)), ("mul", "Mul", (12, 128, 128), (1,)),
        ("add", "Add", (12, 128, 128), (1, 128, 128)),
    ):  # fmt: skip
        other = normals(*shape)
        title = f"{name} of {'x'.join(map(str, shape))} to"
        build = _binary(name, other)
        yield Problem("binary", title, dims, build, node, (other,))
    for dims, shape in (((64, 1024), (64, 1024)), ((768, 768), (768,))):
        exponents = np.rint(2.0 * normals(*shape))
        title = f"power by {'x'.join(map(str, shape))} of"
        yield Problem("binary", title, dims, _binary("pow", exponents), "Pow", (exponents,), near=1e-6)


def _binary(name: str, other: Array) -> Callable[[Graph, Value], Value]:
    return lambda g, x: g.binary(x, other, name)


def selects() -> Iterator[Problem]:
    """Yield a comparison of attention's size and of an image's, with a number and with a tensor, and a choice by a mask."""
    for dims in ((12, 128, 128), (1, 64, 56, 56)):
        zero = np.zeros((), np.float32)
        yield Problem(
            "select", "x < 0", dims, lambda g, x, zero=zero: g.binary(x, zero, "lt", dtype=bool), "Less", (zero,)
        )
        yield Problem("select", "x < y", dims, lambda g, x, y: g.binary(x, y, "lt", dtype=bool), "Less", inputs=2)
    yield Problem(
        "select",
        "x == 0",
        (32, 128),
        lambda g, x: g.binary(x, 0, "eq", dtype=bool),
        "Equal",
        (np.zeros((), np.int64),),
        dtype="int64",
        below=9,
    )
    for dims, shape in (((12, 128, 128), (1, 128, 128)), ((1, 256, 56, 56), (1, 1, 56, 56))):
        mask, low = normals(*shape) > 0, np.float32(-1e9)
        yield Problem(
            "select", f"mask of {'x'.join(map(str, shape))}", dims,
            lambda g, x, mask=mask, low=low: g.select(mask, x, low), "Where", (mask, np.asarray(low)), order=(1, 0, 2),
        )  # fmt: skip
