"""Tensors without elements: an empty batch, an empty past, and results that are made of nothing, as in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import poolrt.onnx
from poolrt import Executor, Graph, Pool, load_onnx
from poolrt.graph.errors import GraphError
from poolrt.onnx.errors import InvalidGraph
from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.onnx.models import session

Array = NDArray[Any]
F32 = np.float32
#: Operator -> shapes of its float32 inputs, known inputs, attributes.
NODES: dict[str, tuple[str, list[tuple[int, ...]], list[Array], dict[str, Any]]] = {
    "add": ("Add", [(0, 3), (1, 3)], [], {}),
    "add of both": ("Add", [(2, 1, 0), (1, 3, 1)], [], {}),
    "relu": ("Relu", [(0, 4)], [], {}),
    "matmul rows": ("MatMul", [(0, 3), (3, 4)], [], {}),
    "matmul sums": ("MatMul", [(2, 0), (0, 4)], [], {}),
    "gemm sums": ("Gemm", [(2, 0), (0, 4), (4,)], [], {"beta": 0.5}),
    "conv": ("Conv", [(0, 3, 8, 8), (4, 3, 3, 3), (4,)], [], {"strides": [2, 2]}),
    "max pool": ("MaxPool", [(0, 3, 8, 8)], [], {"kernel_shape": [2, 2]}),
    "max pool without windows": ("MaxPool", [(1, 2, 4, 9)], [], {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    "max pool less a window in the padding": (
        "MaxPool",
        [(0, 2, 3)],
        [],
        {"kernel_shape": [3], "strides": [3], "pads": [0, 2], "ceil_mode": 1},
    ),
    "average pool of none": ("AveragePool", [(0, 2, 5)], [], {"kernel_shape": [2], "strides": [2], "ceil_mode": 1}),
    "norm pool of none": ("LpPool", [(0, 3, 5)], [], {"kernel_shape": [2], "p": 1}),
    "average pool without windows": ("AveragePool", [(2, 3, 4)], [], {"kernel_shape": [6], "pads": [0, 1]}),
    "norm pool without windows": ("LpPool", [(2, 3, 4)], [], {"kernel_shape": [5]}),
    "global pool": ("GlobalAveragePool", [(0, 3, 8, 8)], [], {}),
    "batch norm": ("BatchNormalization", [(0, 3, 4), (3,), (3,), (3,), (3,)], [], {}),
    "layer norm": ("LayerNormalization", [(0, 5), (5,), (5,)], [], {}),
    "softmax": ("Softmax", [(3, 0)], [], {"axis": 1}),
    "concat": ("Concat", [(0, 3), (2, 3)], [], {"axis": 0}),
    "concat of none": ("Concat", [(0, 3), (0, 3)], [], {"axis": 0}),
    "transpose": ("Transpose", [(0, 2, 3)], [], {"perm": [2, 0, 1]}),
    "reshape": ("Reshape", [(0, 6)], [np.array([0, 2, 3])], {}),
    "slice": ("Slice", [(4, 3)], [np.array([2]), np.array([2]), np.array([0])], {}),
    "gather": ("Gather", [(4, 3)], [np.zeros((0, 2), np.int64)], {"axis": 0}),
    "sum of nothing": ("ReduceSum", [(0, 3)], [np.array([0])], {}),
    "sum of empty rows": ("ReduceSum", [(0, 3)], [np.array([1])], {}),
    "product of nothing": ("ReduceProd", [(0, 3)], [], {"axes": [0]}),
    "largest of empty rows": ("ReduceMax", [(0, 3)], [], {"axes": [1]}),
    "places of empty rows": ("ArgMax", [(0, 3)], [], {"axis": 1}),
    "top of empty rows": ("TopK", [(0, 3)], [np.array([2])], {"axis": 1}),
    "top none": ("TopK", [(3, 4)], [np.array([0])], {"axis": 1}),
    "mean of nothing": ("ReduceMean", [(0, 3)], [], {"axes": [0]}),
    "boxes of none": ("NonMaxSuppression", [(1, 0, 4), (1, 2, 0)], [np.array([3])], {}),
    "different ones of none": ("Unique", [(0, 3)], [], {}),
    "different rows of none": ("Unique", [(0, 3)], [], {"axis": 0}),
    "slices of none": ("Compress", [(0, 3)], [np.zeros(0, bool)], {"axis": 0}),
    "empty slices": ("Compress", [(3, 0)], [np.array([True, False, True])], {"axis": 0}),
    "elements of none": ("Compress", [(3, 0)], [np.array([True, False, True])], {}),
    "scatter no rows": ("ScatterND", [(3, 4)], [np.zeros((0, 1), np.int64), np.zeros((0, 4), F32)], {}),
    "scatter no elements": (
        "ScatterElements",
        [(3, 4)],
        [np.zeros((3, 0), np.int64), np.zeros((3, 0), F32)],
        {"axis": 1},
    ),
    "pad": ("Pad", [(0, 2)], [np.array([1, 0, 1, 0]), np.asarray(F32(7))], {}),
    "pad of a cut beyond the source": ("Pad", [(2, 4)], [np.array([3, -5, -3, 4]), np.asarray(F32(7))], {}),
    "pad of a cut of nothing": ("Pad", [(4, 0)], [np.array([-1, 3, 1, -1]), np.asarray(F32(7))], {}),
    "expand": ("Expand", [(1, 3)], [np.array([0, 3])], {}),
    "tile": ("Tile", [(2, 3)], [np.array([0, 1])], {}),
    "split": ("Split", [(3, 2)], [np.array([3, 0])], {"axis": 0}),
    "split into more parts than elements": ("Split", [(1, 2)], [], {"axis": 0, "num_outputs": 2}),
    "nonzero": ("NonZero", [(0, 3)], [], {}),
    "shape": ("Shape", [(0, 3)], [], {}),
    "size": ("Size", [(0, 3)], [], {}),
    "cumulative sum": ("CumSum", [(0, 3)], [np.asarray(0)], {}),
    "where": ("Where", [], [np.zeros((0, 2), bool), np.zeros((0, 2), F32), np.ones((1, 2), F32)], {}),
    "cast": ("Cast", [(0, 3)], [], {"to": TensorProto.INT64}),
}


def model_of(name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one node whose inputs leave all sizes open, and inputs."""
    operator, shapes, known, attributes = NODES[name]
    feeds = {f"x{i}": np.full(dims, 0.5, F32) for i, dims in enumerate(shapes)}
    fixed = {f"k{i}": each for i, each in enumerate(known)}
    outputs = ["y", "z"] if operator in ("TopK", "Split", "MaxPool") else ["y"]
    node = helper.make_node(operator, [*feeds, *fixed], outputs, "node", **attributes)
    inputs = [
        helper.make_tensor_value_info(key, TensorProto.FLOAT, [f"{key}{axis}" for axis in range(each.ndim)])
        for key, each in feeds.items()
    ]
    kind = {
        "ArgMax": TensorProto.INT64,
        "NonZero": TensorProto.INT64,
        "NonMaxSuppression": TensorProto.INT64,
        "Shape": TensorProto.INT64,
        "Cast": TensorProto.INT64,
    }
    kind["Size"] = TensorProto.INT64
    results = [helper.make_tensor_value_info("y", kind.get(operator, TensorProto.FLOAT), None)]
    if len(outputs) > 1:
        second = TensorProto.FLOAT if operator == "Split" else TensorProto.INT64
        results.append(helper.make_tensor_value_info("z", second, None))
    initializers = [
        numpy_helper.from_array(np.ascontiguousarray(each).reshape(each.shape), key) for key, each in fixed.items()
    ]
    graph = helper.make_graph([node], "single", inputs, results, initializers)
    opset = 18 if "num_outputs" in attributes else 17
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feeds


@pytest.mark.parametrize("name", NODES)
@pytest.mark.one_in(3)
def test_a_node_gives_what_onnx_runtime_gives(cache: PrimitiveProvider, name: str) -> None:
    model, feeds = model_of(name)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = theirs.run(None, feeds)
    found = session(model, cache).run(None, feeds)
    for got, wanted in zip(found, want, strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_session_takes_an_empty_batch_between_others(cache: PrimitiveProvider) -> None:
    model, _ = model_of("conv")
    rng = np.random.default_rng()
    ours, theirs = session(model, cache), onnxruntime.InferenceSession(model.SerializeToString())
    for batch in (2, 0, 3, 0):
        shapes = (batch, 3, 8, 8), (4, 3, 3, 3), (4,)
        feeds = {f"x{i}": rng.standard_normal(dims).astype(F32) for i, dims in enumerate(shapes)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], theirs.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


def test_sizes_that_are_empty_in_several_dimensions_are_kept(cache: PrimitiveProvider) -> None:
    model, _ = model_of("add of both")
    found = session(model, cache).run(None, {"x0": np.zeros((0, 1, 0), F32), "x1": np.zeros((1, 3, 1), F32)})
    assert found[0].shape == (0, 3, 0)


def test_a_graph_has_outputs_without_elements(cache: PrimitiveProvider, tmp_path: Path) -> None:
    model, feeds = model_of("matmul rows")
    graph = load_onnx(model, shapes={key: each.shape for key, each in feeds.items()})
    assert (dict(graph.inputs), graph.outputs, graph.output_types) == ({"x1": (3, 4)}, {"y": (0, 4)}, {"y": "float32"})
    assert Executor(graph, cache=cache).run(x1=feeds["x1"])["y"].shape == (0, 4)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with Pool(workers=1, threads=1, home=str(home), redis_url=f"unix://{home}/none.sock") as pool:
        assert pool.load(graph).run(x1=feeds["x1"])["y"].shape == (0, 4)
        ours = poolrt.onnx.InferenceSession(model, pool=pool)
        assert ours.run(None, feeds)[0].shape == (0, 4)


def test_an_empty_output_has_a_size_of_0() -> None:
    with pytest.raises(GraphError, match="expect sizes with a 0 among them"):
        Graph("g").empty_output("y", (1, 2))


def test_sums_that_do_not_fit_are_refused(cache: PrimitiveProvider) -> None:
    model, _ = model_of("matmul rows")
    with pytest.raises(InvalidGraph, match="do not fit"):
        session(model, cache).run(None, {"x0": np.zeros((0, 3), F32), "x1": np.zeros((4, 5), F32)})
