"""Constant weights of f16 and bf16 in graphs: convolutions and recurrent networks convert them when they are loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt import Executor, Graph
from poolrt.graph.bfloat16 import from_bfloat16, to_bfloat16
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.desc import Arg
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from poolrt.workers.primitives.provider import PrimitiveProvider

DTYPES = ("float16", "bfloat16")


def narrow(values: Any, dtype: str) -> Any:
    """Return values as a run takes and returns them in a data type."""
    return to_bfloat16(values) if dtype == "bfloat16" else values.astype(np.float16)


def wide(values: Any, dtype: str) -> Any:
    return (from_bfloat16(values) if dtype == "bfloat16" else values).astype(np.float64)


def described(graph: Graph, kind: str) -> PrimitiveDesc:
    """Return the primitive descriptor of the only node of a kind, which converts to f32."""
    plan = lower(parse(graph.to_wire()[0]), {"cpu": cpu_target()})
    (found,) = [pd for pd in plan.primitives if (pd.op.kind, pd.impl_name()) == (kind, "nested:f32")]
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.one_in(4)
def test_convolutions_are_rounded_once_and_their_weights_are_f32_in_the_plan(
    dtype: str, size: int, cache: PrimitiveProvider
) -> None:
    # Given a convolution of 16 bits
    rng = np.random.default_rng()
    x, weights, bias = (
        narrow(rng.standard_normal(dims), dtype) for dims in ((2, 19, 9, 7), (21, 19, size, size), (21,))
    )
    g = Graph("g")
    constants = [g.constant(wide(values, dtype), dtype) for values in (weights, bias)]
    g.output("y", g.convolution(g.input("x", x.shape, dtype), *constants, padding=size // 2))
    # When it is computed
    got = wide(Executor(g, cache=cache).run(x=x)["y"], dtype)
    from scipy.signal import correlate  # a second of processor time, in each process that collects tests

    # Then sums are those of float32, and each result is rounded once more
    wanted, magnitude = (
        np.stack([
            np.stack([correlate(padded, kernel, "valid")[0] for kernel in kernels])
            for padded in np.pad(images, [(0, 0), (0, 0), *[(size // 2,) * 2] * 2])
        ]) + added.reshape(-1, 1, 1)
        for images, kernels, added in (
            [wide(values, dtype) for values in (x, weights, bias)],
            [np.abs(wide(values, dtype)) for values in (x, weights, bias)],
        )
    )  # fmt: skip
    rounding = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    bound = (19 * size * size + 2) * 2.0**-24 * magnitude
    assert (np.abs(got - wanted) <= bound * (1 + rounding) + rounding * np.abs(wanted) + 2.0**-25).all()
    # And the plan has weights of f32, reordered when the graph is loaded
    found = described(g, "convolution")
    assert found.memories()[Arg.WEIGHTS].dtype == "f32"
    moved = [pd.memories()[Arg.SRC].dims for pd in found.nested() if pd.op.kind == "reorder"]
    assert set(moved) <= {x.shape, bias.shape, got.shape}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_weights_of_recurrent_networks_are_f32_in_the_plan(kind: str, dtype: str) -> None:
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[kind]
    rng = np.random.default_rng(2)
    g = Graph("g")
    weights = [g.constant(rng.standard_normal((1, 1, 8, gates, 8)), dtype) for _ in range(2)]
    options = {"activation": "tanh"} if kind == "rnn" else {}
    g.output("y", getattr(g, kind)(g.input("x", (3, 2, 8), dtype), *weights, **options)[0])
    found = described(g, kind)
    assert {found.memories()[arg].dtype for arg in (Arg.WEIGHTS, Arg.WEIGHTS_1)} == {"f32"}
