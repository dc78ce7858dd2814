"""Branches that a run chooses, and loops that a computed condition ends, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from poolrt import ModelError, UnsupportedNode, load_onnx

from .node_tests import interpret

Array = NDArray[Any]
node = helper.make_node
#: ONNX Runtime needs these: of others, the shape may be open.
_SHAPES: dict[str, tuple[int, ...]] = {"number": (), "go": (), "row": (3,)}


def body(nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, int], outputs: Mapping[str, int]) -> onnx.GraphProto:
    """Return a graph in an attribute, with the data types of its inputs and outputs."""
    given, results = (
        [helper.make_tensor_value_info(name, kind, _SHAPES.get(name)) for name, kind in each.items()]
        for each in (inputs, outputs)
    )
    return helper.make_graph(list(nodes), "body", given, results)


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Array], outputs: Mapping[str, int], **constants: Any
) -> Any:
    """Return a model whose inputs are like arrays."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    known = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    graph = helper.make_graph(list(nodes), "course", given, results, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(model: Any, feeds: Sequence[Mapping[str, Array]]) -> list[tuple[int, ...]]:
    """Compare the NumPy references with ONNX Runtime; return the shapes of the last outputs."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    graph, shapes = load_onnx(model), []
    for each in feeds:
        found = interpret(graph, each)
        for output, wanted in zip(session.get_outputs(), session.run(None, dict(each)), strict=True):
            np.testing.assert_allclose(found[output.name], wanted, rtol=1e-6, err_msg=output.name)
        shapes.append(found[session.get_outputs()[-1].name].shape)
    return shapes


def test_a_run_chooses_a_branch() -> None:
    kinds = {"one": TensorProto.FLOAT, "two": TensorProto.INT64}
    above = body([node("Mul", ["x", "x"], ["one"]), node("Shape", ["x"], ["two"])], {}, kinds)
    below = body([node("Neg", ["x"], ["one"]), node("Constant", [], ["two"], value_ints=[7, 8])], {}, kinds)
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["condition"]),
        node("If", ["condition"], ["y", "z"], then_branch=above, else_branch=below),
    ]
    x = np.random.default_rng().random((3, 4), np.float32)
    model = model_of(nodes, {"x": x}, {"y": TensorProto.FLOAT, "z": TensorProto.INT64}, zero=np.array(0, np.float32))
    check(model, [{"x": x}, {"x": -x}])


def test_branches_of_other_shapes_are_refused() -> None:
    kinds = {"one": TensorProto.FLOAT}
    branches: dict[str, Any] = {
        "then_branch": body([node("Identity", ["x"], ["one"])], {}, kinds),
        "else_branch": body([node("Transpose", ["x"], ["one"])], {}, kinds),
    }
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Cast", ["sum"], ["condition"], to=TensorProto.BOOL)]
    x = {"x": np.ones((3, 4), np.float32)}
    model = model_of([*nodes, node("If", ["condition"], ["y"], **branches)], x, {"y": TensorProto.FLOAT})
    with pytest.raises(UnsupportedNode, match=r"a run chooses between results 0 of shapes \(3, 4\) and \(4, 3\)"):
        load_onnx(model)
    chosen = model_of([node("If", ["c"], ["y"], **branches)], {**x, "c": np.array(True)}, {"y": TensorProto.FLOAT})
    with pytest.raises(UnsupportedNode, match=r"give the input while loading: values=\{'c': ...\}"):
        load_onnx(chosen)
    assert load_onnx(chosen, values={"c": False}).outputs == {"y": (4, 3)}


def test_a_branch_for_other_shapes_is_no_error_until_it_is_chosen() -> None:
    kinds = {"one": TensorProto.FLOAT}
    branches: dict[str, Any] = {
        "then_branch": body([node("MatMul", ["x", "wide"], ["one"])], {}, kinds),
        "else_branch": body([node("MatMul", ["x", "narrow"], ["one"])], {}, kinds),
    }
    weights = {"wide": np.ones((4, 2), np.float32), "narrow": np.ones((3, 2), np.float32)}
    x = {"x": np.ones((5, 4), np.float32)}
    given = model_of(
        [node("If", ["c"], ["y"], **branches)], {**x, "c": np.array(True)}, {"y": TensorProto.FLOAT}, **weights
    )
    with pytest.raises(UnsupportedNode, match=r"else_branch does not fit: .*MatMul.*: values=\{'c': ...\}"):
        load_onnx(given)
    assert load_onnx(given, values={"c": True}).outputs == {"y": (5, 2)}
    with pytest.raises(ModelError, match="MatMul"):
        load_onnx(given, values={"c": False})
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Cast", ["sum"], ["c"], to=TensorProto.BOOL)]
    computed = model_of([*nodes, node("If", ["c"], ["y"], **branches)], x, {"y": TensorProto.FLOAT}, **weights)
    with pytest.raises(UnsupportedNode, match=r"does not fit.*the condition must be constant"):
        load_onnx(computed)


def test_a_computed_condition_ends_a_loop() -> None:
    step = body(
        [
            node("Mul", ["total", "factor"], ["next"]),
            node("ReduceMax", ["next"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["again"]),
            node("Add", ["next", "one"], ["row"]),
        ],
        {"number": TensorProto.INT64, "go": TensorProto.BOOL, "total": TensorProto.FLOAT},
        {"again": TensorProto.BOOL, "next": TensorProto.FLOAT, "row": TensorProto.FLOAT},
    )
    nodes = [node("Loop", ["passes", "go on", "x"], ["y", "rows"], body=step)]
    numbers = {"factor": np.array(2, np.float32), "limit": np.array(20, np.float32), "one": np.array(1, np.float32)}
    kinds = {"y": TensorProto.FLOAT, "rows": TensorProto.FLOAT}
    x = {"x": np.array([1, 1.5, 0.5], np.float32)}
    model = model_of(nodes, x, kinds, passes=np.array(6), **{"go on": np.array(True)}, **numbers)
    feeds: list[dict[str, Array]] = [x, {"x": 8 * x["x"]}, {"x": x["x"] / 64}, {"x": 100 * x["x"]}]
    assert check(model, feeds) == [(4, 3), (1, 3), (6, 3), (1, 3)]
    without = model_of(nodes, {**x, "go on": np.array(True)}, kinds, passes=np.array(3), **numbers)
    assert check(without, [{**x, "go on": np.array(each)} for each in (True, False)]) == [(3, 3), (0, 3)]
    endless = model_of(nodes, x, kinds, passes=np.array(2**40), **{"go on": np.array(True)}, **numbers)
    with pytest.raises(
        UnsupportedNode, match="a condition that ends the loop within 1099511627776 passes; at most 256"
    ):
        load_onnx(endless)
