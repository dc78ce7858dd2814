"""Errors cross a process whole."""

from __future__ import annotations

import pickle

import pytest

from poolrt import GraphError, ModelError, UnsupportedNode


@pytest.mark.parametrize(
    "error",
    [GraphError("eltwise 'e': src: ..."), ModelError("a.onnx: ..."), UnsupportedNode("n", "LSTM", 9, "there is none")],
)
def test_an_error_survives_pickling(error: GraphError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - it is our own
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_model_errors_are_graph_errors_and_value_errors() -> None:
    assert issubclass(UnsupportedNode, ModelError)
    assert issubclass(ModelError, GraphError)
    assert issubclass(GraphError, ValueError)
