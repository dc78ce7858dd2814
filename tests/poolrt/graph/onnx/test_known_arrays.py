"""What a model computes from constants alone is computed while it is loaded, and has the values of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from poolrt import ModelError, load_onnx
from tests.poolrt.graph.interpreter import run_wire

from .single_node import runtime
from .test_importer import model

Array = NDArray[Any]
_X = np.random.default_rng(1).standard_normal((4, 5, 6)).astype(np.float32)
_PLACES = np.array([[0, 1], [3, -1], [0, 1], [-4, 4]])

CASES: dict[str, tuple[str, dict[str, Array], dict[str, Any]]] = {
    "rows are written": ("ScatterND", {"c": _X, "i": np.array([[2], [0], [2]]), "u": _X[1:]}, {}),
    "parts are written": ("ScatterND", {"c": _X, "i": _PLACES, "u": _X[:, 0]}, {}),
    "one element is written": ("ScatterND", {"c": _X, "i": np.array([1, 2, 3]), "u": _X[0, 0, 0]}, {}),
    "sums": ("CumSum", {"c": _X, "axis": np.array(1)}, {}),
    "sums before each": ("CumSum", {"c": _X, "axis": np.array(-1)}, {"exclusive": 1}),
    "sums from the end": ("CumSum", {"c": _X, "axis": np.array(0)}, {"reverse": 1}),
    "sums after each": ("CumSum", {"c": _X, "axis": np.array(2)}, {"exclusive": 1, "reverse": 1}),
    "a mask is resized": (
        "Resize",
        {"c": np.full((1, 2, 8, 6), 0.5, np.float32), "": np.zeros(0, np.float32),
         "scales": np.array([1, 1, 0.5, 1.5], np.float32)},
        {"mode": "nearest"},
    ),
}  # fmt: skip
#: Sums, which ONNX Runtime rounds in another order.
SUMS: dict[str, tuple[str, dict[str, Array], dict[str, Any]]] = {
    "matrices": ("MatMul", {"c": _X, "d": _X[:1].swapaxes(1, 2)}, {}),
    "a matrix and a row": ("MatMul", {"c": _X, "d": _X[0, 0]}, {}),
    "an inner product": ("Gemm", {"c": _X[0], "d": _X[1], "e": _X[2, 0, :5]}, {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    "an inner product of a table": ("Gemm", {"c": _X[0], "d": _X[1], "e": _X[2, :, :5]}, {"transB": 1}),
    "layers": ("LayerNormalization", {"c": _X, "d": _X[0, 0], "e": _X[1, 0]}, {}),
    "layers of several dimensions": ("LayerNormalization", {"c": _X, "d": _X[0]}, {"axis": 1, "epsilon": 0.1}),
    "sigmoid": ("Sigmoid", {"c": _X * 100}, {}),
}


@pytest.mark.parametrize("name", [*CASES, *SUMS])
def test_what_is_known_is_computed_while_loading(name: str) -> None:
    operator, operands, attributes = (CASES | SUMS)[name]
    nodes = [
        helper.make_node(operator, list(operands), ["known"], **attributes),
        helper.make_node("Add", ["x", "known"], ["y"]),
    ]
    made = model(nodes, {"x": (1,)}, ["y"], {each: value for each, value in operands.items() if each})
    graph = load_onnx(made.SerializeToString())
    assert [node.kind for node in graph.to_ir().nodes if node.kind != "reshape"] == ["binary"]
    x = np.ones(1, np.float32)
    found, wanted = run_wire(*graph.to_wire(), {"x": x})["y"], runtime(made, {"x": x})[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 if name in SUMS else 0)


def test_a_product_beyond_the_limit_of_bytes_is_left_to_the_graph() -> None:
    made = model(
        [helper.make_node("MatMul", ["c", "d"], ["known"]), helper.make_node("Add", ["x", "known"], ["y"])],
        {"x": (1,)}, ["y"], {"c": _X[0, :, :1], "d": _X[0, :1]},
    )  # fmt: skip
    graph = load_onnx(made.SerializeToString(), constant_bytes=100)
    assert [node.kind for node in graph.to_ir().nodes if node.kind != "reshape"] == ["matmul", "binary"]


def test_places_that_an_array_does_not_have_are_refused() -> None:
    for indices, updates in (([[4]], _X[:1]), ([[0, 0, 0, 0]], _X[0, 0, :1]), ([[1]], _X[:2])):
        node = helper.make_node("ScatterND", ["c", "i", "u"], ["known"])
        made = model(
            [node, helper.make_node("Add", ["x", "known"], ["y"])],
            {"x": (1,)}, ["y"], {"c": _X, "i": np.array(indices), "u": updates},
        )  # fmt: skip
        with pytest.raises(ModelError, match="ScatterND"):
            load_onnx(made.SerializeToString())
