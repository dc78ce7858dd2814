"""What newcomers write in programs: each error says, word for word, what is wrong and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import poolrt
from poolrt import Graph
from poolrt.cachestore import CacheStore
from tests.poolrt.pool.created import create
from tests.workers import compiled

X: Final = np.zeros((2, 3), "f4")
_OPEN: Final = (
    "is open, and a graph has fixed sizes: build a graph for each size, or pad inputs to the largest; an Executor, without a "
    "pool, runs one graph on inputs of any size"
)
_TAKES: Final = "model m takes the inputs x float32[2, 3], image float32[2, 3]"
_SOURCES: Final = "graph: expect a Graph, or the path or the bytes of an ONNX model"
_NO_DATA: Final = "a Value is a tensor of a graph and holds no data"


def _graph() -> Graph:
    g = Graph("m")
    x, image = g.input("x", (2, 3)), g.input("image", (2, 3))
    g.output("y", g.eltwise(x, "relu"))
    g.output("w", g.eltwise(image, "relu"))
    return g


#: Building graphs: what is written with a graph g and its input x -> the error, from its type to its end.
GRAPHS: Final[list[tuple[Callable[[Any, Any], object], str]]] = [
    (lambda g, x: g.input("a", (None, 3)), f"GraphError: input 'a': shape: dimension 0 of (None, 3) {_OPEN}"),
    (lambda g, x: g.input("a", (2, "n")), f"GraphError: input 'a': shape: dimension 1 of (2, 'n') {_OPEN}"),
    (lambda g, x: g.input("a", (-1, 3)), f"GraphError: input 'a': shape: dimension 0 of (-1, 3) {_OPEN}"),
    (
        lambda g, x: g.input("a", 3),
        "GraphError: input 'a': shape: expect a sequence of sizes, such as (64, 784), got 3",
    ),
    (
        lambda g, x: g.input("a", "3"),
        "GraphError: input 'a': shape: expect a sequence of sizes, such as (64, 784), got '3'",
    ),
    (lambda g, x: g.input("a", (0, 3)), "GraphError: input 'a': shape: expect sizes of at least 1, got (0, 3)"),
    (
        lambda g, x: g.input((2, 3), "a"),
        "GraphError: input: name: expect text, got (2, 3); write input(name, shape, dtype)",
    ),
    (lambda g, x: g.input("x", (2, 3)), "GraphError: input 'x': there is an input of this name already"),
    (
        lambda g, x: g.input("a", (2, 3), "flaot32"),
        "GraphError: input 'a': dtype: unknown data type 'flaot32'; known: f64, f32, f16, bf16, s64, s32, s8, u8, bool, u64, "
        "u32, s16, u16; "
        "the nearest is 'float32'",
    ),
    (lambda g, x: type(g)(3), "GraphError: name: expect text, got 3; write Graph(name, engine)"),
    (
        lambda g, x: Graph("m", "gpu"),
        "GraphError: graph 'm': engine: expect cpu, opencl or opencl:<index>, got 'gpu'; GPUs are opencl:<index> too: poolrt "
        "doctor lists the devices",
    ),
    (lambda g, x: g.relu(x), "AttributeError: a Graph has no 'relu'; write eltwise(x, 'relu')"),
    (lambda g, x: g.sigmoid(x), "AttributeError: a Graph has no 'sigmoid'; write eltwise(x, 'logistic')"),
    (lambda g, x: g.conv2d(x), "AttributeError: a Graph has no 'conv2d'; write convolution(x, weights, bias)"),
    (lambda g, x: g.linear(x), "AttributeError: a Graph has no 'linear'; write inner_product(x, weights, bias)"),
    (lambda g, x: g.add(x, x), "AttributeError: a Graph has no 'add'; write binary(a, b, 'add')"),
    (lambda g, x: g.flatten(x), "AttributeError: a Graph has no 'flatten'; write reshape(x, shape)"),
    (lambda g, x: g.softmaxx(x), "AttributeError: a Graph has no 'softmaxx'; the nearest is 'softmax'"),
    (
        lambda g, x: g.run(x=X),
        "AttributeError: a Graph has no 'run'; load the graph and run the model: pool.load(graph).run(...)",
    ),
    (
        lambda g, x: g.eltwise(x, "sigmoid"),
        "GraphError: eltwise 'eltwise_0': algorithm: unknown 'sigmoid'; known: relu, tanh, elu, square, abs, sqrt, linear, "
        "logistic, exp, log, clip, clip_v2, gelu_erf, gelu_tanh, hardswish, hardsigmoid, softplus, swish, mish, pow, round, "
        "floor, ceil, trunc, erf, sin, cos, softsign, tan, atan, asin, acos, sign, threshold; "
        "'sigmoid' is 'logistic' here",
    ),
    (
        lambda g, x: g.binary(x, x, "plus"),
        "GraphError: binary 'binary_0': algorithm: unknown 'plus'; known: add, sub, mul, div, max, min, ge, gt, le, lt, eq, "
        "ne, and, or, xor, mod, fmod, floor_div, trunc_div, pow, bit_and, bit_or, bit_xor, shift_left, shift_right, "
        "wrap_add, wrap_sub, wrap_mul, wrap_pow, wrap_abs_diff; "
        "'plus' is 'add' here",
    ),
    (
        lambda g, x: g.eltwise(x, "relu", nmae="a"),
        "TypeError: eltwise: there is no option 'nmae'; the nearest is 'name'",
    ),
    (
        lambda g, x: g.convolution(x, X, stride=2),
        "TypeError: convolution: there is no option 'stride'; the nearest is 'strides'",
    ),
    (
        lambda g, x: g.matmul(x, None),
        "GraphError: matmul 'matmul_0': weights: expect an array of floating point numbers, got None (dtype object)",
    ),
    (
        lambda g, x: g.binary(x, "hello", "add"),
        "GraphError: binary 'binary_0': src1: expect an array of floating point numbers, got str (dtype <U5)",
    ),
    (
        lambda g, x: g.matmul(x, np.zeros((4, 5), "f4")),
        "GraphError: matmul 'matmul_0': weights: expect 3 rows (..., K, N), got (4, 5)",
    ),
    (
        lambda g, x: g.binary(x, Graph().input("b", (2, 3)), "add"),
        "GraphError: binary 'binary_0': src1: expect a value of this graph, got one of another graph",
    ),
    (lambda g, x: g.output("y", X), "GraphError: output 'y': value: expect a value of this graph, got ndarray"),
    (lambda g, x: g.output("y", None), "GraphError: output 'y': value: expect a value of this graph, got None"),
    (
        lambda g, x: g.output(x, "y"),
        "GraphError: output: name: expect text, got Value(shape=(2, 3), dtype='float32'); write output(name, value)",
    ),
    (lambda g, x: g.to_ir(), "GraphError: graph 'm' has no output; name one with output()"),
    (
        lambda g, x: g.concat(x, 0),
        "GraphError: concat 'concat_0': srcs: expect a list of tensors, got one: write [a, b]",
    ),
    (lambda g, x: list(x), "TypeError: 'Value' object is not iterable"),
    (lambda g, x: sum([x, x]), "TypeError: a Value has no operator +: write g.binary(a, b, 'add') on its graph g"),
    (lambda g, x: x + 1, "TypeError: a Value has no operator +: write g.binary(a, b, 'add') on its graph g"),
    (lambda g, x: 2 * x, "TypeError: a Value has no operator *: write g.binary(a, b, 'mul') on its graph g"),
    (lambda g, x: x @ X.T, "TypeError: a Value has no operator @: write g.matmul(a, b) on its graph g"),
    (lambda g, x: x > 0, "TypeError: a Value has no operator >: write g.binary(a, b, 'gt') on its graph g"),
    (lambda g, x: x[0], "TypeError: a Value has no operator []: write g.slice(a, starts, ends, axes) on its graph g"),
    (lambda g, x: np.asarray(x), f"TypeError: {_NO_DATA}: load the graph, run the model and use its outputs"),
    (lambda g, x: np.exp(x), f"TypeError: {_NO_DATA}: NumPy's exp does not take it; use an operation of Graph"),
    (lambda g, x: X + x, f"TypeError: {_NO_DATA}: NumPy's add does not take it; use an operation of Graph"),
    (lambda g, x: poolrt.Grpah, "AttributeError: module 'poolrt' has no attribute 'Grpah'; the nearest is 'Graph'"),
    (
        lambda g, x: poolrt.load_onx,
        "AttributeError: module 'poolrt' has no attribute 'load_onx'; the nearest is 'load_onnx'",
    ),
    (
        lambda g, x: poolrt.load_onnx(None),
        "TypeError: model: expect a path, the bytes of a model or an onnx.ModelProto, got None",
    ),
    (lambda g, x: poolrt.load_onnx("none.onnx"), "ModelError: none.onnx: cannot be read: No such file or directory"),
    (
        lambda g, x: poolrt.connect("/nowhere/x.sock"),
        "CoordinatorLost: no coordinator listens at /nowhere/x.sock: No such file or directory; start one with poolrt serve "
        "--socket /nowhere/x.sock",
    ),
]

#: With a pool, and a loaded model of two inputs.
POOLS: Final[list[tuple[Callable[[Any, Any], object], str]]] = [
    (lambda p, m: p.load(3), f"TypeError: {_SOURCES}, got int"),
    (lambda p, m: p.load(None), f"TypeError: {_SOURCES}, got None"),
    (lambda p, m: p.load(X), f"TypeError: {_SOURCES}, got ndarray"),
    (lambda p, m: p.load(Graph), f"TypeError: {_SOURCES}, got the class Graph: make one with Graph()"),
    (lambda p, m: p.load(m), f"TypeError: {_SOURCES}, got a Model, which is loaded already: run it"),
    (
        lambda p, m: p.load(_graph),
        f"TypeError: {_SOURCES}, got function: functions are called with pool.submit(function, ...)",
    ),
    (
        lambda p, m: p.load(_graph(), batch=3),
        "TypeError: batch and shapes are for ONNX models: the shapes of a Graph are those that it was built with",
    ),
    (
        lambda p, m: p.load("none.onnx", shapes=[(1, 3)]),
        "TypeError: shapes: expect a dict by input, such as {'x': (1, 3)}, or a list of these, got tuple in it",
    ),
    (
        lambda p, m: p.submit(len([])),
        "TypeError: submit: expect a function, got int; give the function and its arguments apart: pool.submit(f, x), not "
        "pool.submit(f(x))",
    ),
    (
        lambda p, m: p.map([1, 2], len),
        "TypeError: map: expect a function, got list; give the function and its arguments apart: pool.map(f, x), not "
        "pool.map(f(x))",
    ),
    (lambda p, m: p.load("none.onnx"), "ModelError: none.onnx: cannot be read: No such file or directory"),
    (lambda p, m: p.load(Graph("e")), "GraphError: graph 'e' has no output; name one with output()"),
    (lambda p, m: m.run(), f"ValueError: {_TAKES}; given: none; missing: x, image"),
    (lambda p, m: m.run(x=X), f"ValueError: {_TAKES}; given: x; missing: image"),
    (
        lambda p, m: m.run(x=X, imgae=X),
        f"ValueError: {_TAKES}; given: x, imgae; missing: image; unknown: imgae; the nearest is 'image'",
    ),
    (lambda p, m: m.run(x=X, image=X, q=X), f"ValueError: {_TAKES}; given: x, image, q; unknown: q"),
    (lambda p, m: m.run(X, X), "TypeError: model m takes its inputs by name: x, image; write run(x=..., image=...)"),
    (
        lambda p, m: m.run({"x": X, "image": X}),
        "TypeError: model m takes its inputs by name: x, image; write run(**inputs)",
    ),
    (lambda p, m: m.predict(X), "AttributeError: a Model has no 'predict'; write run(x=...), with its inputs by name"),
    (lambda p, m: m.input, "AttributeError: a Model has no 'input'; the nearest is 'inputs'"),
    (lambda p, m: m.submit(X), "TypeError: model m takes its inputs by name: x, image; write run(x=..., image=...)"),
    (lambda p, m: list(m.map([X])), "TypeError: model m takes a dict of inputs by name for each run, got ndarray"),
    (lambda p, m: m.run(x=X[:1], image=X), "ValueError: input x of model m must be of shape (2, 3), got (1, 3)"),
    (
        lambda p, m: m.run(x=X.astype("f8"), image=X),
        "TypeError: input x of model m must be of dtype float32, got float64; convert it: array.astype('float32')",
    ),
    (
        lambda p, m: m.run(x=None, image=X),
        "TypeError: input x of model m must be an array of dtype float32 and shape (2, 3), got None",
    ),
    (
        lambda p, m: m.run(x="hello", image=X),
        "ValueError: input x of model m must be an array of dtype float32 and shape (2, 3), got str (could not convert string "
        "to float: 'hello')",
    ),
    (lambda p, m: m.run(x=X, image=X)["out"], "KeyError: \"there is no output 'out'; there are: y, w\""),
    (
        lambda p, m: p.empty((None, 3)),
        "TypeError: shape: expect an integer or a sequence of integers, such as (64, 784), got (None, 3)",
    ),
    (
        lambda p, m: p.empty("3"),
        "TypeError: shape: expect an integer or a sequence of integers, such as (64, 784), got '3'",
    ),
    (lambda p, m: p.empty((-1, 3)), "ValueError: negative dimensions are not allowed: (-1, 3)"),
]


#: With an executor of the same graph.
EXECUTORS: Final[list[tuple[Callable[[Any], object], str]]] = [
    (lambda e: e.run(X, X), "TypeError: graph m takes its inputs by name: x, image; write run(x=..., image=...)"),
    (
        lambda e: e.run(x=X, imgae=X),
        "ValueError: graph m takes the inputs x float32[2, 3], image float32[2, 3]; given: x, imgae; missing: image; unknown: "
        "imgae; the nearest is 'image'",
    ),
    (
        lambda e: e.run(x=X.astype("f8"), image=X),
        "TypeError: input x: expect dtype float32, got float64; convert it: array.astype('float32')",
    ),
    (lambda e: e.run(x=None, image=X), "TypeError: input x must be an array of dtype float32, got None"),
    (
        lambda e: e.run(x="hello", image=X),
        "ValueError: input x must be an array of dtype float32, got str (could not convert string to float: 'hello')",
    ),
    (lambda e: e.run(x=X, image=X)["out"], "KeyError: \"there is no output 'out'; there are: y, w\""),
    (lambda e: type(e)("m.onnx"), "TypeError: graph: expect a Graph, got str"),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[poolrt.Pool, poolrt.Model]]:
    """A pool and a model of two inputs and two outputs."""
    home = tmp_path_factory.mktemp("home")
    create(home, _graph())
    settings: dict[str, Any] = {
        "home": str(home),
        "redis_url": f"unix://{home}/none.sock",
        "arena_bytes": 64 * 1024 * 1024,
    }
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        yield pool, pool.load(_graph())


def _error_of(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:
        action()
    return f"{caught.type.__name__}: {caught.value}"


@pytest.mark.parametrize(("mistake", "expected"), GRAPHS, ids=[expected[:60] for _, expected in GRAPHS])
def test_a_mistake_in_building_a_graph_says_what_to_write(mistake: Callable[[Any, Any], object], expected: str) -> None:
    g = Graph("m")
    x = g.input("x", (2, 3))
    assert _error_of(lambda: mistake(g, x)) == expected


@pytest.mark.parametrize(("mistake", "expected"), POOLS, ids=[f"{i}-{case[1][:60]}" for i, case in enumerate(POOLS)])
def test_a_mistake_with_a_pool_says_what_to_write(
    mistake: Callable[[Any, Any], object], expected: str, loaded: tuple[poolrt.Pool, poolrt.Model]
) -> None:
    assert _error_of(lambda: mistake(*loaded)) == expected


@pytest.mark.parametrize(("mistake", "expected"), EXECUTORS, ids=[expected[:60] for _, expected in EXECUTORS])
def test_a_mistake_with_an_executor_says_what_to_write(
    mistake: Callable[[Any], object], expected: str, tmp_path: Path
) -> None:
    # Without a server, as in other tests: this one is about words
    with CacheStore.connect(f"unix://{tmp_path}/none.sock", home=str(tmp_path)) as store:
        executor = poolrt.Executor(_graph(), cache=compiled.cache(8, store))
        assert _error_of(lambda: mistake(executor)) == expected


def test_a_closed_pool_says_what_to_do() -> None:
    pool = poolrt.Pool(workers=1, threads=1)
    pool.close()
    assert _error_of(pool.stats) == "PoolClosed: the pool is closed: make a new one"
    assert _error_of(lambda: pool.load(_graph())) == "PoolClosed: the pool is closed: make a new one"


def test_an_unknown_setting_of_a_pool_names_the_nearest() -> None:
    said = _error_of(lambda: poolrt.Pool(worker=2))
    assert said.startswith("SettingsError: argument: worker: no such setting; known: arena_bytes, capacity, ")
    assert said.endswith("; the nearest is 'workers'")


def test_a_pool_loads_a_model_from_a_path_and_from_bytes(
    loaded: tuple[poolrt.Pool, poolrt.Model], tmp_path: Any
) -> None:
    import onnx
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("N", 3))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="eltwise_0")], "small", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(made, str(path))
    pool, _ = loaded
    for source in (path, str(path), made.SerializeToString(), made):
        model = pool.load(source, batch=2)
        assert [(spec.name, spec.shape) for spec in model.inputs] == [("x", (2, 3))]
        assert (model.run(x=X - 1)["y"] == 0).all()
    assert pool.load(str(path), shapes={"x": (2, 3)}).inputs[0].shape == (2, 3)


def test_an_unknown_operation_is_suggested_once(capsys: pytest.CaptureFixture[str]) -> None:
    import traceback

    # The interpreter would append its own suggestion to an error that names the object.
    try:
        poolrt.Grpah  # noqa: B018
    except AttributeError as error:
        assert "".join(traceback.format_exception(error)).count("Graph") == 1
