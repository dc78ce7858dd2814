"""Products of integers that are converted and scaled afterwards are scaled by the product itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt import Graph
from poolrt.graph.passes import optimize
from tests.poolrt.graph.interpreter import run_wire


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("kind", ["matmul", "convolution"])
def test_a_product_of_integers_takes_scales_and_bias(kind: str, channels: bool) -> None:
    rng = np.random.default_rng(3)
    g = Graph("rescaled")
    dims, kernel = ((2, 4, 8), (8, 6)) if kind == "matmul" else ((1, 8, 5, 5), (6, 8, 3, 3))
    weights = rng.integers(-127, 128, kernel).astype(np.int8)
    row = (6,) if kind == "matmul" else (1, 6, 1, 1)
    x, point = g.input("x", dims, "uint8"), g.input("point", (), "int32")
    factor = g.input("factor", row if channels else (), "float32")
    # Given a product with a zero point that a run brings, converted, multiplied by what a run brings, and a row added
    operation = g.matmul if kind == "matmul" else g.convolution
    sums = operation(x, weights, dtype="int32", zero_points={"src": point})
    y = g.binary(g.reorder(sums, dtype="float32"), factor, "mul")
    g.output("y", g.binary(y, rng.standard_normal(row).astype(np.float32), "add"))
    # Then the product does all of it
    nodes = [node for node in optimize(g.to_ir()).nodes if node.kind != "reshape"]
    assert [node.kind for node in nodes] == [kind]
    inputs: dict[str, NDArray[Any]] = {
        "x": rng.integers(0, 256, dims).astype(np.uint8), "point": np.asarray(120, np.int32),
        "factor": rng.uniform(0.001, 0.002, row if channels else ()).astype(np.float32),
    }  # fmt: skip
    want = run_wire(*g.to_wire(optimize=False), inputs)["y"]
    np.testing.assert_allclose(run_wire(*g.to_wire(), inputs)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", ["two readers", "scale of rows", "zero point of sums"])
def test_sums_that_are_read_otherwise_stay_integers(case: str) -> None:
    g = Graph("kept")
    points = {"dst": 7} if case == "zero point of sums" else {}
    sums = g.matmul(g.input("x", (4, 8), "uint8"), np.ones((8, 6), np.int8), dtype="int32", zero_points=points)
    factor = np.full((4, 1) if case == "scale of rows" else (), 0.5, np.float32)
    g.output("y", g.binary(g.reorder(sums, dtype="float32"), factor, "mul"))
    if case == "two readers":
        g.output("z", sums)
    assert [node.kind for node in optimize(g.to_ir()).nodes][1:] == ["reorder", "binary"]
