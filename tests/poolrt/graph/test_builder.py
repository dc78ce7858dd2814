"""Building graphs: shapes, constants, names, and errors that say where and what."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import poolrt
from poolrt import Graph, GraphError, Value

from .interpreter import run_wire


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_the_example_of_a_multi_layer_perceptron_computes_what_numpy_does() -> None:
    random = np.random.default_rng(0)
    w1, b1, w2, b2 = (random.standard_normal(s) for s in ((784, 32), (32,), (32, 10), (10,)))
    g = poolrt.Graph("mlp")
    x = g.input("x", (64, 784), "float32")
    h = g.eltwise(g.matmul(x, w1, b1), "relu")
    g.output("y", g.softmax(g.matmul(h, w2, b2), axis=-1))
    batch = random.standard_normal((64, 784))
    logits = np.maximum(batch @ w1 + b1, 0) @ w2 + b2
    expected = np.exp(logits - logits.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    y = run_wire(*g.to_wire(), {"x": batch})["y"]
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-6)
    assert g.inputs == {"x": (64, 784)}
    assert g.outputs == {"y": (64, 10)}


SHAPES: list[tuple[Callable[[Graph, Value], Value], tuple[int, ...]]] = [
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3)), (2, 8, 8, 10)),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), ones(8), strides=2, padding=1), (2, 8, 5, 6)),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), strides=(1, 2), padding=(1, 0)), (2, 8, 10, 5)),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), padding=((0, 2), (1, 0))), (2, 8, 10, 11)),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), dilations=1), (2, 8, 6, 8)),
    (lambda g, x: g.convolution(x, ones(8, 2, 1, 1), groups=2), (2, 8, 10, 12)),
    (lambda g, x: g.pooling(x, "max", 2, strides=2), (2, 4, 5, 6)),
    (lambda g, x: g.pooling(x, "avg_exclude_padding", (10, 12)), (2, 4, 1, 1)),
    (lambda g, x: g.eltwise(x, "clip", 0.0, 6.0), (2, 4, 10, 12)),
    (lambda g, x: g.binary(x, 2.0, "mul"), (2, 4, 10, 12)),
    (lambda g, x: g.binary(ones(3, 1, 1, 1, 1), x, "add"), (3, 2, 4, 10, 12)),
    (lambda g, x: g.sum([x, x, x]), (2, 4, 10, 12)),
    (lambda g, x: g.concat([x, x], axis=-3), (2, 8, 10, 12)),
    (lambda g, x: g.softmax(x, axis=1), (2, 4, 10, 12)),
    (lambda g, x: g.batch_normalization(x, ones(4), ones(4)), (2, 4, 10, 12)),
    (lambda g, x: g.lrn(x, 3), (2, 4, 10, 12)),
    (lambda g, x: g.matmul(x, ones(12, 5)), (2, 4, 10, 5)),
    (lambda g, x: g.matmul(x, ones(1, 4, 12, 5), ones(5)), (2, 4, 10, 5)),
    (lambda g, x: g.matmul(x, ones(12, 5), ones(1, 5)), (2, 4, 10, 5)),
    (lambda g, x: g.inner_product(x, ones(7, 4, 10, 12), ones(7)), (2, 7)),
    (lambda g, x: g.reshape(x, (2, -1)), (2, 480)),
    (lambda g, x: g.reshape(x, (0, 0, -1)), (2, 4, 120)),
    (lambda g, x: g.unsqueeze(x, (0, -1)), (1, 2, 4, 10, 12, 1)),
    (lambda g, x: g.squeeze(g.unsqueeze(x, 1)), (2, 4, 10, 12)),
    (lambda g, x: g.squeeze(g.unsqueeze(x, (1, 2)), -4), (2, 1, 4, 10, 12)),
    (lambda g, x: g.transpose(x), (12, 10, 4, 2)),
    (lambda g, x: g.transpose(x, (0, 2, 3, -3)), (2, 10, 12, 4)),
    (lambda g, x: g.reorder(x, "nChw16c"), (2, 4, 10, 12)),
]


@pytest.mark.parametrize(("operation", "expected"), SHAPES)
def test_an_operation_gives_its_shape(operation: Callable[[Graph, Value], Value], expected: tuple[int, ...]) -> None:
    g = Graph("g")
    y = operation(g, g.input("x", (2, 4, 10, 12)))
    assert y.shape == expected
    assert y.dtype == "float32"
    g.output("y", y)
    # Both forms compute, and the interpreter checks every shape on the wire.
    picture = np.random.default_rng(0).standard_normal((2, 4, 10, 12))
    plain = run_wire(*g.to_wire(optimize=False), {"x": picture})["y"]
    assert plain.shape == expected
    np.testing.assert_allclose(run_wire(*g.to_wire(), {"x": picture})["y"], plain, rtol=1e-5, atol=1e-6)


ERRORS: list[tuple[Callable[[Graph, Value], object], str]] = [
    (
        lambda g, x: g.convolution(x, ones(8, 3, 3, 3), name="conv1"),
        "convolution 'conv1': weights: expect 4 input channels, got 3",
    ),
    (
        lambda g, x: g.convolution(x, ones(8, 3, 3, 3), groups=2),
        "convolution 'convolution_0': weights: expect 2 input channels in each of 2 groups, got 3",
    ),
    (lambda g, x: g.convolution(x, ones(8, 4, 3)), "weights: expect rank 4 like src (2, 4, 10, 12), got (8, 4, 3)"),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), groups=3), "groups: 3 must divide 4 channels"),
    (lambda g, x: g.convolution(x, ones(9, 2, 3, 3), groups=2), "groups: 2 must divide 9 output channels"),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), ones(7)), "bias: expect (8,), got (7,)"),
    (lambda g, x: g.convolution(x, ones(8, 4, 13, 3), padding=1), "src: (10, 12) with its padding is smaller than the"),
    (
        lambda g, x: g.pooling(x, "max", (5, 3), dilations=2),
        "the kernel (5, 3), which its dilations spread over (13, 7)",
    ),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), strides=0), "strides: expect 2 values >= 1, got (0, 0)"),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), strides=(1, 1, 1)), "strides: expect one integer or 2, got (1, 1"),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), padding=-1), "padding_l: expect 2 values >= 0"),
    (
        lambda g, x: g.convolution(x, ones(8, 4, 3, 3), padding=((1, 1),)),
        "padding: expect one integer, 2 integers or 2",
    ),
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), padding="same"), "padding: expect one integer, 2"),  # type: ignore[arg-type]
    (lambda g, x: g.convolution(x, ones(8, 4, 3, 3), dilations=1.5), "dilations: expect one integer or 2, got 1.5"),  # type: ignore[arg-type]
    (lambda g, x: g.convolution(ones(2, 4), ones(8, 4)), "src: expect (N, C, *spatial), got rank 2"),
    (lambda g, x: g.pooling(x, "average", 2), "algorithm: unknown 'average'; known: max, avg_include_padding"),
    (lambda g, x: g.pooling(x, "max", (2, 2, 2)), "kernel: expect one integer or 2, got (2, 2, 2)"),
    (lambda g, x: g.pooling(x, "max", 0), "kernel: expect 2 sizes >= 1, got (0, 0)"),
    (
        lambda g, x: g.pooling(x, "max", 2**30, strides=2**30, padding=2**30),
        "kernel: expect a window of at most 2147483647 ",
    ),
    (
        lambda g, x: g.pooling(x, "max", 2, strides=2**62, padding=2**62),
        "strides: expect values of at most 2147483647, got",
    ),
    (
        lambda g, x: g.convolution(x, ones(8, 4, 3, 3), strides=2**31 - 1, padding=2**40),
        "padding_l: expect values of at most 2147483647, got",
    ),
    (
        lambda g, x: g.resampling(x, "linear", (2**40, 1)),
        "dst: expect sizes of at most 16777216, got (1",
    ),
    (lambda g, x: g.eltwise(x, "swoosh"), "algorithm: unknown 'swoosh'; known: relu"),
    (lambda g, x: g.eltwise(x, "clip", 0.0), "beta: clip needs it"),
    (lambda g, x: g.binary(x, ones(4), "add"), "src1: shapes (2, 4, 10, 12) and (1, 1, 1, 4) do not broadcast"),
    (lambda g, x: g.binary(x, x, "root"), "algorithm: unknown 'root'; known: add"),
    (lambda g, x: g.binary(x, "a", "add"), "binary 'binary_0': src1: expect an array of floating point numbers"),
    (lambda g, x: g.binary(x, ones(0), "add"), "src1: expect sizes of at least 1, got (0,)"),
    (lambda g, x: g.sum([x, ones(2, 4, 10, 1)], name="s"), "sum 's': srcs: expect one shape, got (2, 4, 10, 12) and"),
    (lambda g, x: g.sum([]), "srcs: expect at least one source"),
    (lambda g, x: g.sum([], scales={"src": 0.5}), "srcs: expect at least one source"),
    (lambda g, x: g.sum(7), "srcs: expect a list of tensors, got 7"),  # type: ignore[arg-type]
    (lambda g, x: g.concat([], 0), "srcs: expect at least one source"),
    (lambda g, x: g.eltwise(x, "relu", name=[1]), "eltwise 'eltwise_0': name: expect text, got [1]"),  # type: ignore[arg-type]
    (lambda g, x: g.squeeze(x, name=3), "squeeze 'squeeze_0': name: expect text, got 3"),  # type: ignore[arg-type]
    (lambda g, x: g.eltwise(x, "relu", implementation=3), "implementation: expect text, got 3"),  # type: ignore[arg-type]
    (lambda g, x: Graph("g", implementation=None), "graph 'g': implementation: expect text"),  # type: ignore[arg-type]
    (lambda g, x: g.eltwise(x, "relu", scales=0.5), "scales: expect numbers by the names of arguments"),  # type: ignore[arg-type]
    (lambda g, x: g.eltwise(x, "relu", zero_points=[3]), "zero_points: expect numbers by the names"),  # type: ignore[arg-type]
    (lambda g, x: g.reduction(x, b"sum"), "algorithm: "),  # type: ignore[arg-type]
    (lambda g, x: g.eltwise(x, np.array(["relu"] * 2)), "algorithm: unknown array(['relu', 'relu']"),  # type: ignore[arg-type]
    (lambda g, x: g.reorder(x, dtype="s8", wraps=2), "wraps: expect "),  # type: ignore[arg-type]
    (lambda g, x: g.gather(x, 7, 1), "indices: 7 is out of range for sizes of (4,)"),
    (
        lambda g, x: g.deconvolution(x, ones(8, 4, 3, 3), dilations=1, output_padding=1),
        "output_padding: expect 0..0, got (1, 1)",
    ),
    (lambda g, x: g.empty_output("y", "ab"), "empty_output 'y': shape: expect "),  # type: ignore[arg-type]
    (lambda g, x: g.empty_output(["y"], (0,)), "empty_output: name: expect text, got ['y']"),  # type: ignore[arg-type]
    (
        lambda g, x: g.concat([x, ones(2, 4, 9, 12)], 1),
        "srcs: (2, 4, 10, 12) and (2, 4, 9, 12) do not join along axis 1",
    ),
    (lambda g, x: g.concat([x, x], 4), "axis: expect -4..3, got 4"),
    (lambda g, x: g.softmax(x, axis=-5), "axis: expect -4..3, got -5"),
    (lambda g, x: g.softmax(x, algorithm="fast"), "algorithm: unknown 'fast'; known: accurate, log"),
    (lambda g, x: g.batch_normalization(x, ones(4), ones(5)), "variance: expect (4,), got (5,)"),
    (lambda g, x: g.batch_normalization(x, ones(4), ones(4), epsilon=-1.0), "epsilon: must not be negative"),
    (lambda g, x: g.lrn(x, 0), "local_size: must be at least 1, got 0"),
    (lambda g, x: g.matmul(x, ones(11, 5)), "weights: expect 12 rows (..., K, N), got (1, 1, 11, 5)"),
    (lambda g, x: g.matmul(x, ones(12)), "weights: expect rank >= 2, got (12,)"),
    (lambda g, x: g.matmul(x, ones(3, 1, 12, 5)), "weights: batch shapes (2, 4) and (3, 1) do not broadcast"),
    (lambda g, x: g.matmul(x, ones(12, 5), ones(4)), "bias: expect (1, 1, 1, 5), got (1, 1, 1, 4)"),
    (
        lambda g, x: g.inner_product(x, ones(7, 4)),
        "weights: expect src (N, IC) and weights (OC, IC), got (2, 4, 10, 12)",
    ),
    (lambda g, x: g.inner_product(ones(2, 5), ones(7, 4)), "weights: expect (OC, 5), got (7, 4)"),
    (lambda g, x: g.reshape(x, (2, 7)), "shape: (2, 4, 10, 12) does not reshape to (2, 7)"),
    (
        lambda g, x: g.reshape(x, (960, 1, 1, 1, 0)),
        "shape: (2, 4, 10, 12) does not have the dimensions (-1, -1, -1, -1, 4) that (960, 1, 1, 1, 0) keeps",
    ),
    (lambda g, x: g.reshape(x, (-1, -1)), "shape: expect sizes and at most one -1, got (-1, -1)"),
    (lambda g, x: g.reshape(x, (-1, 7)), "shape: (2, 4, 10, 12) does not reshape to (-1, 7)"),
    (lambda g, x: g.squeeze(x, 1), "axes: dimension 1 of (2, 4, 10, 12) is not 1"),
    (lambda g, x: g.unsqueeze(x, (1, 1)), "axes: expect each axis once, got (1, 1)"),
    (lambda g, x: g.transpose(x, (0, 1, 2)), "perm: expect each of 0..3 once, got (0, 1, 2)"),
    (lambda g, x: g.transpose(x, (0, 1, 2, 4)), "perm: expect -4..3, got 4"),
    (lambda g, x: g.reorder(x, "abc"), "format_tag: format tag 'abc' does not name each of 4 dimensions once"),
    (
        lambda g, x: g.eltwise(Graph("h").input("x", (1,)), "relu"),
        "src: expect a value of this graph, got one of another",
    ),
    (
        lambda g, x: [g.eltwise(x, "relu", name="n") for _ in range(2)],
        "eltwise 'n': name: another node has this name",
    ),
    (lambda g, x: g.input("x", (1,)), "input 'x': there is an input of this name already"),
    (lambda g, x: g.input("y", (0, 3)), "input 'y': shape: expect sizes of at least 1, got (0, 3)"),
    (lambda g, x: g.input("y", "abc"), "input 'y': shape:"),  # type: ignore[arg-type]
    (lambda g, x: g.input("y", (1,), "complex64"), "input 'y': dtype: unknown data type 'complex64'; known: f64"),
    (lambda g, x: g.input("y", (1,), "float31"), "input 'y': dtype: unknown data type 'float31'"),
    (
        lambda g, x: [twice() for twice in [partial(g.output, "y", x)] * 2],
        "output 'y': there is an output of this name already",
    ),
    (lambda g, x: g.output("y", ones(3)), "output 'y': value: expect a value of this graph"),
    (lambda g, x: g.to_wire(), "graph 'g' has no output"),
    (lambda g, x: Graph("g", "gpu"), "graph 'g': engine: expect cpu, opencl or opencl:<index>, got 'gpu'"),
    (
        lambda g, x: setattr(g, "engine", "cpu:1x"),
        "graph 'g': engine: expect cpu, opencl or opencl:<index>, got 'cpu:1x",
    ),
    (lambda g, x: Graph("g", "opencl:"), "graph 'g': engine: expect cpu, opencl or opencl:<index>, got 'opencl:'"),
]


@pytest.mark.parametrize(("mistake", "expected"), ERRORS, ids=[text[:60] for _, text in ERRORS])
def test_a_mistake_is_reported_where_it_is_made(mistake: Callable[[Graph, Value], object], expected: str) -> None:
    g = Graph("g")
    x = g.input("x", (2, 4, 10, 12), np.float32)
    with pytest.raises(GraphError) as caught:
        mistake(g, x)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_refused_operation_leaves_the_graph_as_it_was() -> None:
    g = Graph("g")
    x = g.input("x", (2, 3))
    with pytest.raises(GraphError):
        g.reshape(x, (7,), name="view")
    g.output("y", g.reshape(x, (6,), name="view"))
    assert [node[:2] for node in g.to_wire()[0]["nodes"]] == [["reshape", "view"]]


def test_an_array_given_twice_is_one_constant() -> None:
    g = Graph("g")
    x = g.input("x", (2, 3))
    shared, equal = ones(1, 3), ones(1, 3)
    for _ in range(2):
        x = g.binary(x, shared, "add")
    g.output("y", g.binary(x, equal, "add"))
    _, constants = g.to_wire(optimize=False)
    assert [id(constant.array) for constant in constants] == [id(shared), id(equal)]


def test_numbered_names_avoid_those_that_are_taken() -> None:
    g = Graph("g")
    x = g.input("x", (3,))
    x = g.eltwise(x, "relu", name="eltwise_0")
    g.output("y", g.eltwise(g.eltwise(x, "exp"), "tanh"))
    assert [node[1] for node in g.to_wire(optimize=False)[0]["nodes"]] == ["eltwise_0", "eltwise_1", "eltwise_2"]


def test_building_a_graph_imports_no_heavy_library() -> None:
    code = (
        "import sys, poolrt; g = poolrt.Graph('g'); g.output('y', g.eltwise(g.input('x', (2,)), 'relu')); g.to_wire();"
        "poolrt.load_onnx; heavy = {'onnx', 'numba', 'llvmlite', 'redis', 'asyncio', 'scipy', 'rich', 'pyopencl'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
