"""What a graph spells out as a division, rounding, a zero point and a conversion is one step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from poolrt import Graph, Value
from poolrt.graph.passes import optimize
from tests.poolrt.graph.native_graphs import NativeGraphs

#: Quotients by 0.5 of these are halves, of which every second one is rounded down.
X = (np.arange(-600, 600, dtype=np.float32) / 4).reshape(3, 400)


def quantised(g: Graph, x: Value, point: float, dtype: str, scale: object = 0.5) -> Value:
    whole = g.eltwise(g.binary(x, np.asarray(scale, np.float32), "div"), "round")
    if point:
        whole = g.binary(whole, np.float32(point), "add")
    return g.reorder(whole, dtype=dtype)


@pytest.mark.parametrize(("point", "dtype"), [(17, "uint8"), (-3, "int8"), (0, "int8")])
def test_a_spelled_out_quantisation_is_one_step_with_the_same_results(
    point: int, dtype: str, native_graphs: NativeGraphs
) -> None:
    g = Graph("quantised")
    g.output("y", quantised(g, g.input("x", X.shape), point, dtype))
    (node,) = optimize(g.to_ir()).nodes
    assert (node.kind, [step.algorithm for step in node.post_ops]) == ("binary", ["round"])
    limits = np.iinfo(dtype)
    want = np.clip(np.rint(X / 0.5) + point, limits.min, limits.max).astype(dtype)
    np.testing.assert_array_equal(native_graphs.run(g, {"x": X})["y"], want)


def test_the_scale_may_be_computed(native_graphs: NativeGraphs) -> None:
    g = Graph("computed")
    x, scale = g.input("x", (2, 16, 5, 5)), g.input("scale", (1,))
    g.output("y", g.reorder(g.eltwise(g.binary(x, scale, "div"), "round"), dtype="int8"))
    given = np.random.default_rng().normal(0, 60, x.shape).astype(np.float32)
    want = np.clip(np.rint(given / np.float32(0.7)), -128, 127)
    got = native_graphs.run(g, {"x": given, "scale": np.full(1, 0.7, np.float32)})["y"]
    np.testing.assert_array_equal(got, want)
    assert [node.kind for node in optimize(g.to_ir()).nodes if node.kind != "reshape"] == ["binary"]


def test_the_zero_point_may_be_computed(native_graphs: NativeGraphs) -> None:
    g = Graph("computed")
    x, scale, point = g.input("x", (5, 37)), g.input("scale", ()), g.eltwise(g.input("point", ()), "round")
    g.output("y", g.reorder(g.binary(g.eltwise(g.binary(x, scale, "div"), "round"), point, "add"), dtype="uint8"))
    given = np.random.default_rng().normal(0, 60, x.shape).astype(np.float32)
    numbers = {"scale": np.array(0.7, np.float32), "point": np.array(93.2, np.float32)}
    want = np.clip(np.rint(given / np.float32(0.7)) + 93, 0, 255)
    np.testing.assert_array_equal(native_graphs.run(g, {"x": given, **numbers})["y"], want)
    kinds = [node.kind for node in optimize(g.to_ir()).nodes if node.kind != "reshape"]
    assert kinds == ["eltwise", "reorder", "binary"]


def leave_quotient(g: Graph, x: Value) -> None:
    quotient = g.binary(x, np.float32(0.5), "div")
    g.output("quotient", quotient)
    g.output("y", g.reorder(g.eltwise(quotient, "round"), dtype="uint8"))


def scale_columns(g: Graph, x: Value) -> None:
    g.output("y", quantised(g, x, 5, "uint8", np.full(400, 0.5)))


@pytest.mark.parametrize(
    "build", [leave_quotient, scale_columns, lambda g, x: g.output("y", quantised(g, x, 0.5, "uint8"))]
)
def test_what_is_more_than_that_stays_as_it_is(build: Callable[[Graph, Value], None]) -> None:
    g = Graph("more")
    build(g, g.input("x", X.shape))
    ir = g.to_ir()
    kept = [node.kind for node in ir.nodes if node.kind != "reshape"]
    assert [node.kind for node in optimize(ir).nodes] == kept
