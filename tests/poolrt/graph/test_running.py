"""Whole graphs on the processor: every operation, data types, quantisation and views give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from poolrt import Graph

from .every_operation import OPERATIONS, array, graph_of, values_of
from .interpreter import run_wire
from .native_graphs import NativeGraphs
from .random_graphs import graphs

Array = NDArray[Any]


def agree(got: Array, want: Array, rtol: float = 2e-5, atol: float = 2e-5) -> None:
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.one_in(4)
def test_an_operation_computes_what_numpy_does(native_graphs: NativeGraphs, name: str) -> None:
    graph, x = graph_of(name), values_of(name)
    want = run_wire(*graph.to_wire(), {"x": x})
    for output, got in native_graphs.run(graph, {"x": x}).items():
        agree(got, want[output])


#: Operations, some with the data type that they are tried with by default; the thorough tier tries all pairs.
KEEPERS = {
    "deconvolution": "",
    "reduction": "bfloat16",
    "layer_normalization": "float64",
    "slice": "float16",
    "gru": "",
    "shuffle": "float64",
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=[] if dtype == usual else pytest.mark.slow)
        for name, usual in KEEPERS.items()
        for dtype in ("float16", "bfloat16", "float64")
    ],
)
def test_operations_keep_the_data_type_of_their_operands(native_graphs: NativeGraphs, name: str, dtype: str) -> None:
    graph, x = graph_of(name, dtype), values_of(name)
    want = run_wire(*graph.to_wire(), {"x": x})
    # Both round each result once, but what is rounded differs in its last bits.
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-6}[dtype]
    for output, got in native_graphs.run(graph, {"x": x}).items():
        agree(got, want[output], tolerance, tolerance)


def test_a_quantised_network_gives_the_integers_that_it_should(native_graphs: NativeGraphs) -> None:
    # Given a small network of 8-bit integers
    random = np.random.default_rng(0)
    w1 = random.integers(-128, 128, (8, 3, 3, 3)).astype(np.int8)
    w2 = random.integers(-128, 128, (5, 8)).astype(np.int8)
    g = Graph("quantised")
    x = g.input("x", (2, 3, 6, 6))
    q = g.reorder(x, dtype="uint8", scales={"dst": 0.02}, zero_points={"dst": 128})
    per_channel = np.linspace(0.001, 0.004, 8, dtype=np.float32)
    scales: dict[str, Any] = {"src": 0.02, "weights": per_channel, "dst": 0.05}
    h = g.convolution(q, w1, scales=scales, zero_points={"src": 128, "dst": 10}, dtype="uint8")
    pooled = g.pooling(h, "max", 4)
    flat = g.reshape(pooled, (2, 8))
    g.output("h", h)
    g.output("sums", g.inner_product(flat, w2))
    g.output("y", g.reorder(flat, dtype="float32", scales={"src": 0.05}, zero_points={"src": 10}))
    # When it is computed, then all of it is exact
    values = {"x": random.standard_normal((2, 3, 6, 6)).astype(np.float32)}
    want = run_wire(*g.to_wire(), values)
    got = native_graphs.run(g, values)
    assert [got[name].dtype.name for name in ("h", "sums")] == ["uint8", "int32"]
    np.testing.assert_array_equal(got["h"], want["h"])
    np.testing.assert_array_equal(got["sums"], want["sums"])
    agree(got["y"], want["y"])


@pytest.mark.parametrize("point", [128, np.int32(300), "constant"])
def test_padding_is_zero_for_a_zero_point_beyond_the_type_of_src(native_graphs: NativeGraphs, point: Any) -> None:
    random = np.random.default_rng(1)
    g = Graph("beyond")
    x = g.input("x", (1, 16, 4, 4), "int8")
    known = g.constant([-200], "int32") if point == "constant" else point
    weights = random.integers(-128, 128, (16, 16, 3, 3)).astype(np.int8)
    g.output("y", g.convolution(x, weights, padding=1, zero_points={"src": known}))
    values = {"x": random.integers(-128, 128, (1, 16, 4, 4)).astype(np.int8)}
    np.testing.assert_array_equal(native_graphs.run(g, values)["y"], run_wire(*g.to_wire(), values)["y"])


def test_data_types_change_on_the_way(native_graphs: NativeGraphs) -> None:
    g = Graph("types")
    x = g.input("x", (3, 40), "int64")
    half = g.reorder(x, dtype="float16")
    y = g.eltwise(g.reorder(half, dtype="float32"), "logistic")
    g.output("bits", g.binary(y, 0.5, "ge", dtype="bool"))
    g.output("bytes", g.reorder(g.eltwise(y, "linear", 300.0, -20.0), dtype="uint8"))
    g.output("brain", g.reorder(y, dtype="bfloat16"))
    values = {"x": np.random.default_rng(0).integers(-9, 9, (3, 40))}
    want, got = run_wire(*g.to_wire(), values), native_graphs.run(g, values)
    np.testing.assert_array_equal(got["bits"], want["bits"])
    np.testing.assert_array_equal(got["bytes"], want["bytes"])
    agree(got["brain"], want["brain"], 1e-2)


def test_a_graph_on_references_computes_what_a_fast_one_does(native_graphs: NativeGraphs) -> None:
    def graph(**options: Any) -> Graph:
        g = Graph("net")
        x = g.convolution(g.input("x", (1, 3, 9, 9)), array(16, 3, 3, 3), array(16), padding=1, **options)
        x = g.pooling(g.eltwise(x, "relu", **options), "max", 3, strides=2, **options)
        g.output("y", g.softmax(g.inner_product(g.reshape(x, (1, -1)), array(10, 256), **options), **options))
        return g

    values = {"x": array(1, 3, 9, 9)}
    fast, slow = native_graphs.run(graph(), values)["y"], native_graphs.run(graph(implementation="ref:"), values)["y"]
    agree(fast, slow)
    assert not np.array_equal(fast, slow)


@pytest.mark.parametrize("examples", [15, pytest.param(40, marks=pytest.mark.slow)])
def test_random_graphs_compute_the_same_in_every_layout(native_graphs: NativeGraphs, examples: int) -> None:
    quiet = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])

    @settings(quiet, max_examples=examples)
    @given(graphs(implementation="ref:", views=True))
    def compare(drawn: tuple[Graph, dict[str, Array]]) -> None:
        check_layouts(native_graphs, *drawn)

    compare()


def check_layouts(native_graphs: NativeGraphs, graph: Graph, inputs: dict[str, Array]) -> None:
    """Raise AssertionError unless a graph's outputs are right with layouts chosen and without."""
    want = run_wire(*graph.to_wire(optimize=False), {name: x.astype(np.float32) for name, x in inputs.items()})
    for optimize in (True, False):
        for name, got in native_graphs.run(graph, inputs, optimize).items():
            scale = max(1.0, float(np.abs(want[name][np.isfinite(want[name])]).max(initial=0.0)))
            agree(got, want[name], 1e-4, 1e-4 * scale)
